//! A machine's state outside its memory: in a file, and back.
//!
//! | module | owns |
//! |---|---|
//! | [`directory`] | what belongs to one snapshot, and in which order it is written |
//! | [`file`] | the state file: a header that can be read alone, then records |
//! | [`form`] | the bytes of a record: read strictly, bounded by their own length |
//! | [`kvm`] | the record of the virtual machine and its vCPUs, and the order in which it goes back |
//! | [`devices`] | the records of the small devices |
//! | [`error`] | why nothing was saved or restored |
//!
//! What is saved is a struct of its own with a version that is never changed, only followed by
//! another; nothing that lives is read from a file. Going back is a trust boundary: whatever stands
//! in the file, what is restored is a machine that could have been saved, or an error that names the
//! rule, before a vCPU runs.
//!
//! Not here: the guest's memory, which has a file of its own ([`crate::memory`]), and the
//! executions, whose record is the hub's.

pub(crate) mod devices;
pub(crate) mod directory;
mod error;
pub(crate) mod file;
pub(crate) mod form;
pub(crate) mod kvm;

pub use directory::SnapshotReport;
pub use error::{RecordProblem, RestoreError, SnapshotError};
