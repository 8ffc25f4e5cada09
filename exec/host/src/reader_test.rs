use tokio::io::AsyncReadExt;

use crate::fake_guest::{ByHand, FakeVm};

#[test]
fn output_of_one_stream_does_not_wake_the_reader_of_the_other() {
    for (wakes, sleeps) in [(0, 1), (1, 0)] {
        let vm = FakeVm::new();
        let handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        let id = handle.id();
        let mut parts = handle.split();
        let (mut out, mut err) = ([0; 8], [0; 8]);
        let mut reads = [
            ByHand::new(parts.stdout.read(&mut out)),
            ByHand::new(parts.stderr.read(&mut err)),
        ];
        for read in &mut reads {
            assert!(read.poll().is_pending());
        }
        vm.command(id, |command| command.out[wakes].extend(b"hello"));
        vm.settle();
        assert!(reads[wakes].woken.is_set());
        assert!(!reads[sleeps].woken.is_set());
        assert!(reads[wakes].poll().is_ready());
        vm.command(id, |command| command.exit = Some(0));
        vm.settle();
        assert!(reads[sleeps].woken.is_set(), "the end wakes both");
    }
}
