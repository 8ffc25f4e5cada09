//! The modules that a guest needs of a distribution's kernel, as an initramfs layer.
//!
//! PID 1 loads a list of files and resolves nothing, so the order is found here: from what each
//! module says it depends on (`.modinfo`), since a package's index of dependencies is made only when
//! it is installed. Modules are uncompressed here too: PID 1 cannot, and not every kernel can.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, InitramfsBuilder, Result, command};

/// Drivers without which no guest of ours is reached.
const NEEDED: [&str; 2] = ["virtio_mmio", "virtio_console"];
/// Drivers of what else the machine has: panics told from resets, the host's clock.
const USEFUL: [&str; 2] = ["pvpanic_mmio", "ptp_kvm"];

/// Where PID 1 finds what to load.
const LIST: &str = "etc/forebay/modules";
/// Where they are, below a directory of their release. Not `lib/modules`: most roots have a link to
/// `usr/lib` in the place of `/lib`, and a layer's directory would take that place from it.
const DIRECTORY: &str = "etc/forebay/kernel";

/// Writes the layer for the kernel `release`, whose modules are in `tree`, and returns the modules'
/// names in the order of loading.
pub(super) fn layer(
    package: &str,
    release: &str,
    tree: &Path,
    target: &Path,
) -> Result<Vec<String>> {
    let scratch = target.with_extension("ko");
    fs::create_dir(&scratch).map_err(Error::file("create", &scratch))?;
    let mut order = Order {
        package,
        tree: Tree::read(tree)?,
        scratch: &scratch,
        chosen: Vec::new(),
        names: BTreeSet::new(),
    };
    for name in NEEDED {
        order.need(name)?;
    }
    for name in USEFUL {
        if order.tree.files.contains_key(name) {
            order.need(name)?;
        }
    }
    let mut archive = InitramfsBuilder::new();
    let mut list = String::new();
    let mut names = Vec::new();
    for module in order.chosen {
        let path = format!("{DIRECTORY}/{release}/{}", module.place);
        list.push_str(&format!("/{path}\n"));
        archive.host_file(&path, 0o644, module.file);
        names.push(module.name);
    }
    archive.file(LIST, 0o644, list).write_file(target)?;
    crate::cache::remove_tree(&scratch)?;
    Ok(names)
}

/// The modules of a kernel.
struct Tree {
    /// Path of each module's file below the tree's root, by the module's name.
    files: BTreeMap<String, PathBuf>,
    /// Names of those that are part of the kernel.
    builtin: BTreeSet<String>,
    root: PathBuf,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut directories = vec![root.join("kernel")];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(&directory).map_err(Error::file("list", &directory))?;
            for entry in entries {
                let path = entry.map_err(Error::file("list", &directory))?.path();
                if path.is_dir() {
                    directories.push(path);
                } else if let (Some(name), Ok(below)) = (name_of(&path), path.strip_prefix(root)) {
                    files.insert(name, below.to_path_buf());
                }
            }
        }
        let path = root.join("modules.builtin");
        let listed = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let builtin = listed
            .lines()
            .filter_map(|line| name_of(Path::new(line)))
            .collect();
        Ok(Self {
            files,
            builtin,
            root: root.to_path_buf(),
        })
    }
}

/// A module's name by its file: without what says how it is compressed, dashes as underscores.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (name, compressed) = name.split_once(".ko")?;
    matches!(compressed, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

/// A module that goes into the layer.
struct Module {
    name: String,
    /// Path below the tree's root, uncompressed.
    place: String,
    /// Where it is on the host, uncompressed.
    file: PathBuf,
}

/// Collects modules, each behind those it depends on.
struct Order<'a> {
    package: &'a str,
    tree: Tree,
    scratch: &'a Path,
    chosen: Vec<Module>,
    /// Of those that were chosen or are being looked at.
    names: BTreeSet<String>,
}

impl Order<'_> {
    fn need(&mut self, name: &str) -> Result<()> {
        if self.tree.builtin.contains(name) || !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(place) = self.tree.files.get(name).cloned() else {
            return Err(Error::KernelPackage {
                package: self.package.to_owned(),
                reason: format!("it has no module {name}, and it is not built in either"),
            });
        };
        let file = self.scratch.join(format!("{name}.ko"));
        uncompress(&self.tree.root.join(&place), &file)?;
        let content = fs::read(&file).map_err(Error::file("read", &file))?;
        for dependency in dependencies(&content) {
            self.need(&dependency)?;
        }
        let place = place.to_string_lossy();
        let end = place.find(".ko").map_or(place.len(), |at| at + 3);
        self.chosen.push(Module {
            name: name.to_owned(),
            place: place.chars().take(end).collect(),
            file,
        });
        Ok(())
    }
}

/// What a module says it depends on: `depends=a,b` between two NULs, in its `.modinfo`.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"depends=";
    let said = module
        .split(|byte| *byte == 0)
        .find_map(|text| text.strip_prefix(KEY))
        .unwrap_or_default();
    String::from_utf8_lossy(said)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Copies a module, uncompressed.
fn uncompress(module: &Path, target: &Path) -> Result<()> {
    let program = match module.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            return fs::copy(module, target)
                .map(drop)
                .map_err(Error::file("copy", module));
        }
    };
    command::output_into(
        Command::new(program)
            .args(["--decompress", "--stdout"])
            .arg(module),
        target,
    )
}

#[cfg(test)]
#[path = "modules_test.rs"]
mod tests;
