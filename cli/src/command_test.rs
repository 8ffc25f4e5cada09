use super::*;

fn relayed(result: io::Result<()>) -> Relayed {
    let (done, relayed) = oneshot::channel();
    done.send(result).unwrap();
    relayed
}

#[tokio::test]
async fn an_input_output_error_is_a_hang_up_only_of_a_terminal() {
    let failed = || relayed(Err(Errno::IO.into()));
    assert!(written(failed(), true).await.is_ok());
    let lost = written(failed(), false).await;
    assert!(matches!(lost, Err(Ended::Output(error)) if error.raw_os_error() == Some(5)));
    let full = written(relayed(Err(Errno::NOSPC.into())), true).await;
    assert!(matches!(full, Err(Ended::Output(_))));
}

#[test]
fn an_id_that_could_not_be_printed_is_told_with_the_error() {
    let id = ExecId::new(42).unwrap();
    assert!(unprinted(id).contains("42"));
}
