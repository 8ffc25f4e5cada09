//! A file system that never answers.

use std::ffi::CString;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Outcome;

/// Mounts one on `dir`, prints `mounted`, and takes it away at the end of stdin. Who waits for it by
/// then gets an error.
pub(crate) fn hang(dir: &str) -> Outcome {
    // What a server would read its requests from. Nobody does.
    let requests = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        requests.as_raw_fd()
    );
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("hang", dir, "fuse", flags, options.as_c_str())?;
    println!("mounted");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    unmount(dir, UnmountFlags::DETACH)?;
    Ok(0)
}
