use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::fake_guest::FakeVm;

/// Keeps warnings as text.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_guest_without_limits_is_warned_of_once_by_the_vms_name_also_on_a_later_connection() {
    let heard = Warnings::default();
    let count = || heard.0.lock().unwrap().len();
    with_default(heard.clone(), || {
        let vm = FakeVm::allowing_legacy();
        vm.open();
        assert!(vm.hub.inspect().bounded);
        assert_eq!(count(), 0);
        for _ in 0..2 {
            vm.open_legacy();
            assert!(!vm.hub.inspect().bounded);
            assert_eq!(count(), 1);
        }
    });
    let warning = heard.0.lock().unwrap().concat();
    assert!(warning.contains("vm=\"museum\" agent=\"old\""), "{warning}");
}
