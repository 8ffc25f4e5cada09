use super::*;

fn pair(delay: Duration) -> (UnixStream, UnixStream, Relay) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("target.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let relay = Relay::start(&path, delay).unwrap();
    let client = UnixStream::connect(relay.path()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        // Instead of a test that hangs.
        end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    (client, server, relay)
}

#[test]
fn bytes_pass_both_ways_in_order_and_an_end_ends_the_other_side() {
    let (mut client, mut server, _relay) = pair(Duration::ZERO);
    for number in 0..100_u8 {
        client.write_all(&[number]).unwrap();
        server.write_all(&[number, number]).unwrap();
    }
    let mut there = [0; 100];
    server.read_exact(&mut there).unwrap();
    assert!(there.iter().copied().eq(0..100));
    let mut back = [0; 200];
    client.read_exact(&mut back).unwrap();
    assert!(back.iter().copied().eq((0..100).flat_map(|n| [n, n])));
    drop(client);
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

#[test]
fn nothing_arrives_before_its_delay() {
    let delay = Duration::from_millis(20);
    let (mut client, mut server, _relay) = pair(delay);
    let sent = Instant::now();
    client.write_all(b".").unwrap();
    server.read_exact(&mut [0]).unwrap();
    // A lower bound, which no load can break.
    assert!(sent.elapsed() >= delay);
}
