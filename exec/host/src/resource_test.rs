use super::Resource;

#[test]
fn resources_have_linux_numbers_and_are_found_by_their_names() {
    for (number, resource) in (0..).zip(Resource::ALL) {
        assert_eq!(resource.number(), number);
        assert_eq!(resource.to_string().parse(), Ok(resource));
    }
    // asm-generic/resource.h
    let known = [
        (Resource::Cpu, 0),
        (Resource::Core, 4),
        (Resource::Nproc, 6),
        (Resource::Nofile, 7),
        (Resource::Memlock, 8),
        (Resource::As, 9),
        (Resource::Nice, 13),
        (Resource::Rttime, 15),
    ];
    for (resource, number) in known {
        assert_eq!(resource.number(), number, "{resource}");
    }
}

#[test]
fn a_name_that_no_resource_has_is_refused_with_those_there_are() {
    for name in ["", "files", "NOFILE", "nofile "] {
        let error = name.parse::<Resource>().unwrap_err();
        assert_eq!(error.name, name);
        let text = error.to_string();
        assert!(text.contains("nofile, memlock"), "{text}");
    }
}
