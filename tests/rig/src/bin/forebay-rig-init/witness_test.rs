use super::{address, entries};

#[test]
fn a_symbol_is_found_by_its_whole_name() {
    let symbols = "ffffffffc0698500 t __pfx___svm_vcpu_run\t[kvm_amd]\n\
                   ffffffffc0698510 t __svm_vcpu_run\t[kvm_amd]\n\
                   ffffffff9ac00000 T _text\n";
    assert_eq!(
        address(symbols, "__svm_vcpu_run"),
        Some(0xffff_ffff_c069_8510)
    );
    assert_eq!(address(symbols, "_text"), Some(0xffff_ffff_9ac0_0000));
    assert_eq!(address(symbols, "svm_vcpu_run"), None);
}

#[test]
fn a_trace_of_headings_alone_has_no_entry() {
    let heading = "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n";
    assert_eq!(entries(heading).count(), 0);
    let exit = "   forebay-vcpu0-160     [000] d..1.    18.035639: kvm_exit: vcpu 0 reason npf\n";
    let trace = format!("{heading}{exit}{exit}");
    assert_eq!(entries(&trace).collect::<Vec<_>>(), [exit.trim(); 2]);
}
