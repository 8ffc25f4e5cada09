use super::*;

#[test]
fn a_missing_device_is_explained_by_what_the_processor_shows() {
    assert!(why_missing("flags\t\t: fpu vmx sse\n").contains("kvm_intel"));
    assert!(why_missing("flags\t\t: fpu svm sse\n").contains("kvm_amd"));
    assert!(why_missing("flags\t\t: fpu sse svmx\n").contains("nested virtualisation"));
    assert!(why_missing("").contains("nested virtualisation"));
}

#[test]
fn a_group_is_found_by_its_number_and_not_by_a_number_that_begins_like_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("group");
    std::fs::write(&file, "root:x:0:\nten:x:1070:\nkvm:x:107:alice\n").unwrap();
    assert_eq!(group_name(&file, 107), "kvm");
    assert_eq!(group_name(&file, 10), "10");
    assert_eq!(group_name(&dir.path().join("none"), 107), "107");
}

#[test]
fn the_error_for_a_refused_device_names_the_group_to_join() {
    let text = KvmError::Permission {
        mode: 0o660,
        uid: 0,
        group: "kvm".into(),
    }
    .to_string();
    assert!(text.contains("usermod -aG kvm"), "{text}");
    assert!(text.contains("0660"), "{text}");
}
