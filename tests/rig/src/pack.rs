//! The initramfs of one run: base system, files and trees of the host, and the libraries that
//! dynamic programs among them need.
//!
//! L1 has a merged `/usr` as the host has, so a library packed from either name is found by both.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_images::InitramfsBuilder;

use crate::order::{ORDER_PATH, Order};
use crate::{Assets, Clock, Error, Result, RigCommand};

/// Links of a merged `/usr`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Search path in L1.
const PATH: &str = "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin";

/// Builds the archive of one run.
pub(crate) fn pack(command: &RigCommand, assets: &Assets) -> Result<InitramfsBuilder> {
    let mut packer = Packer {
        archive: InitramfsBuilder::new(),
        examined: BTreeSet::new(),
    };
    packer.base(assets)?;
    for (host, l1) in &command.files {
        packer.add(host, l1)?;
    }
    let mut argv = command.argv.clone();
    if let Some(program) = argv.first_mut()
        && program.contains('/')
        && !packer.archive.contains(&merged(program))
    {
        // The same path as on the host, made absolute; a program's idea of its own place holds.
        let host = fs::canonicalize(&*program).map_err(|_| Error::NoSuchFile {
            path: PathBuf::from(&*program),
        })?;
        let absolute = host.to_string_lossy().into_owned();
        packer.add(&host, &absolute)?;
        *program = absolute;
    }
    let cwd = merged(&command.cwd);
    if !cwd.is_empty() && !packer.archive.contains(&cwd) {
        packer.archive.directory(&cwd, 0o755);
    }
    let order = Order {
        modules: assets
            .modules
            .iter()
            .map(|path| module_path(path))
            .collect(),
        argv,
        env: environment(command),
        cwd: command.cwd.clone(),
        stdin: command.stdin,
        outputs: command.outputs.clone(),
        watched: command.clock == Clock::Wall,
    };
    let text = serde_json::to_vec(&order).map_err(|error| {
        Error::file("write", Path::new(ORDER_PATH))(std::io::Error::other(error))
    })?;
    packer.archive.file(ORDER_PATH, 0o644, text);
    Ok(packer.archive)
}

fn environment(command: &RigCommand) -> Vec<(String, String)> {
    let mut env: Vec<_> = [
        ("PATH", PATH),
        ("HOME", "/root"),
        ("TMPDIR", "/tmp"),
        ("FOREBAY_IN_RIG", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    env.extend(command.env.iter().cloned());
    env
}

struct Packer {
    archive: InitramfsBuilder,
    /// Host files whose libraries are packed already.
    examined: BTreeSet<PathBuf>,
}

impl Packer {
    fn base(&mut self, assets: &Assets) -> Result<()> {
        self.archive
            .early_devices()
            .host_file("init", 0o755, &assets.init)
            .host_file("usr/bin/busybox", 0o755, &assets.busybox)
            .directory("proc", 0o555)
            .directory("sys", 0o555)
            .directory("run", 0o755)
            .directory("tmp", 0o1777)
            .directory("root", 0o700)
            .directory("var/tmp", 0o1777)
            .file("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")
            .file("etc/group", 0o644, "root:x:0:\n")
            .file("etc/hosts", 0o644, "127.0.0.1 localhost\n");
        for name in MERGED {
            self.archive
                .directory(&format!("usr/{name}"), 0o755)
                .symlink(name, &format!("usr/{name}"));
        }
        for module in &assets.modules {
            self.archive.host_file(&module_path(module), 0o644, module);
        }
        let listed = Command::new(&assets.busybox)
            .arg("--list-full")
            .output()
            .map_err(Error::file("run", &assets.busybox))?;
        for applet in String::from_utf8_lossy(&listed.stdout).lines() {
            let path = merged(applet);
            if path.contains('/') && !self.archive.contains(&path) {
                self.archive.symlink(&path, "/usr/bin/busybox");
            }
        }
        Ok(())
    }

    /// Packs a file or a directory with all in it.
    fn add(&mut self, host: &Path, l1: &str) -> Result<()> {
        let metadata = fs::metadata(host).map_err(|_| Error::NoSuchFile {
            path: host.to_path_buf(),
        })?;
        if !metadata.is_dir() {
            return self.add_file(host, l1, metadata.permissions().mode());
        }
        self.archive.directory(&merged(l1), 0o755);
        for entry in fs::read_dir(host).map_err(Error::file("list", host))? {
            let entry = entry.map_err(Error::file("list", host))?;
            let path = entry.path();
            let l1 = format!(
                "{}/{}",
                l1.trim_end_matches('/'),
                entry.file_name().to_string_lossy()
            );
            let kind = entry.file_type().map_err(Error::file("read", &path))?;
            if kind.is_symlink() {
                let target = fs::read_link(&path).map_err(Error::file("read", &path))?;
                self.archive
                    .symlink(&merged(&l1), &target.to_string_lossy());
            } else if kind.is_dir() || kind.is_file() {
                self.add(&path, &l1)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, host: &Path, l1: &str, mode: u32) -> Result<()> {
        self.archive.host_file(&merged(l1), mode & 0o7777, host);
        let first_time = self.examined.insert(host.to_path_buf());
        if first_time && is_elf(host)? {
            for library in libraries(host)? {
                if self.examined.insert(library.clone()) {
                    let path = merged(&library.to_string_lossy());
                    self.archive.host_file(&path, 0o755, &library);
                }
            }
        }
        Ok(())
    }
}

fn module_path(module: &Path) -> String {
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    format!("rig/modules/{name}")
}

/// The path below L1's root, with the links of a merged `/usr` resolved.
fn merged(path: &str) -> String {
    let path = path.trim_matches('/');
    let top = path.split('/').next().unwrap_or_default();
    if MERGED.contains(&top) && top != path {
        format!("usr/{path}")
    } else {
        path.to_owned()
    }
}

fn is_elf(path: &Path) -> Result<bool> {
    let mut magic = Vec::with_capacity(4);
    File::open(path)
        .and_then(|file| file.take(4).read_to_end(&mut magic))
        .map_err(Error::file("read", path))?;
    Ok(magic == b"\x7fELF")
}

/// The libraries the dynamic linker would load for a program, itself included; none for a static
/// one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .map_err(Error::file("run ldd on", program))?;
    // ldd fails on what is not dynamic: kernels, static programs, objects.
    if !listed.status.success() {
        return Ok(Vec::new());
    }
    parse_ldd(&String::from_utf8_lossy(&listed.stdout)).map_err(|library| Error::MissingLibrary {
        program: program.to_path_buf(),
        library,
    })
}

/// Reads `ldd`'s lines: `name => /path (address)`, `/path (address)` for the linker itself,
/// `name (address)` for what the kernel maps. A library that is not found is the error.
fn parse_ldd(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, rest) = line.split_once(" => ").unwrap_or(("", line));
        if rest.starts_with("not found") {
            return Err(name.to_owned());
        }
        let path = rest.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "pack_test.rs"]
mod tests;
