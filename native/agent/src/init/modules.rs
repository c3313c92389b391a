//! Loading kernel modules with what they depend on.
//!
//! A folder of module files is all there is: what a module needs stands in the file itself, in the `depends=` entry of
//! its `.modinfo` section, so that no index has to be made.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use crate::failure::Failure;

/// The module files of a folder, by name.
#[derive(Debug)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
}

impl Modules {
    /// Lists the folder.
    pub fn in_folder(folder: &Path) -> Result<Self, Failure> {
        let entries = fs::read_dir(folder)
            .map_err(|error| Failure::os(&format!("cannot list the modules in {}", folder.display()), &error))?;
        let files = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((normalized(name.strip_suffix(".ko")?), entry.path()))
        });
        Ok(Self { files: files.collect() })
    }

    /// Loads the named modules in this order, each after what it depends on.
    pub fn load<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        for path in self.in_order(names)? {
            let file = File::open(path).map_err(|error| Failure::os(&path.display().to_string(), &error))?;
            match finit_module(&file, &CString::default(), ModuleInitFlags::empty()) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(Failure::unsupported(format!("cannot load {}: {errno}", path.display()))),
            }
        }
        Ok(())
    }

    /// The aliases of every module, as glob patterns: which devices it drives; with the module's name.
    ///
    /// A file that is no module has none.
    pub fn aliases(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut aliases = Vec::new();
        for (name, path) in &self.files {
            let image = read(path)?;
            aliases
                .extend(entries(&image, b"alias=").unwrap_or_default().into_iter().map(|alias| (alias, name.clone())));
        }
        Ok(aliases)
    }

    /// The files to load, dependencies first, each once.
    ///
    /// A dependency without a file is taken to be built into the kernel; a named module without one is an error.
    fn in_order<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Vec<&Path>, Failure> {
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        for name in names {
            let name = normalized(name);
            if !self.files.contains_key(&name) {
                let present: Vec<&str> = self.files.keys().map(String::as_str).collect();
                let present = present.join(", ");
                return Err(Failure::unsupported(format!("there is no module {name}; there are: {present}")));
            }
            self.visit(name, &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit<'a>(&'a self, name: String, seen: &mut HashSet<String>, order: &mut Vec<&'a Path>) -> Result<(), Failure> {
        let Some(path) = self.files.get(&name) else {
            return Ok(());
        };
        if !seen.insert(name) {
            return Ok(());
        }
        let image = read(path)?;
        let depends = depends(&image)
            .ok_or_else(|| Failure::unsupported(format!("{} is no kernel module of 64 bits", path.display())))?;
        for dependency in depends {
            self.visit(dependency, seen, order)?;
        }
        order.push(path);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::os(&format!("cannot read {}", path.display()), &error))
}

/// Dashes and underscores are the same in module names.
fn normalized(name: &str) -> String {
    name.replace('-', "_")
}

/// Names that the module depends on, from its `.modinfo` section; `None` when the image is no module.
#[must_use]
pub fn depends(image: &[u8]) -> Option<Vec<String>> {
    let found = entries(image, b"depends=")?;
    let names = found.first().map_or("", String::as_str);
    Some(names.split(',').filter(|name| !name.is_empty()).map(normalized).collect())
}

/// What stands behind a key in the module's `.modinfo` section; `None` when the image is no module.
fn entries(image: &[u8], key: &[u8]) -> Option<Vec<String>> {
    let info = section(image, b".modinfo")?;
    let values = info.split(|&byte| byte == 0).filter_map(|entry| entry.strip_prefix(key));
    values.map(|value| String::from_utf8(value.to_vec()).ok()).collect()
}

/// A section of an ELF file of 64 bits, little endian (ELF specification, "Sections").
fn section<'a>(image: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    const HEADER_BYTES: usize = 64;
    if image.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = integer(image, 0x28, 8)?;
    let count = integer(image, 0x3c, 2)?;
    let names_index = integer(image, 0x3e, 2)?;
    let header = |index: usize| {
        let start = table.checked_add(index.checked_mul(HEADER_BYTES)?)?;
        image.get(start..start.checked_add(HEADER_BYTES)?)
    };
    let content = |header: &[u8]| {
        let (start, length) = (integer(header, 0x18, 8)?, integer(header, 0x20, 8)?);
        image.get(start..start.checked_add(length)?)
    };
    let names = content(header(names_index)?)?;
    (0..count).find_map(|index| {
        let header = header(index)?;
        let name = names.get(integer(header, 0, 4)?..)?;
        (name.strip_prefix(wanted)?.first() == Some(&0)).then(|| content(header))?
    })
}

fn integer(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    let value = field.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An ELF file with a section of names and a `.modinfo`.
    fn image(info: &[u8]) -> Vec<u8> {
        let names = b"\0.shstrtab\0.modinfo\0";
        let (names_at, info_at) = (64, 64 + names.len());
        let table_at = info_at + info.len();
        let mut image = vec![0; 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[0x28..0x30].copy_from_slice(&(table_at as u64).to_le_bytes());
        image[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
        image[0x3e..0x40].copy_from_slice(&1u16.to_le_bytes());
        image.extend_from_slice(names);
        image.extend_from_slice(info);
        for (name, start, length) in [(0u32, 0, 0), (1, names_at, names.len()), (11, info_at, info.len())] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(start as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(length as u64).to_le_bytes());
            image.extend_from_slice(&header);
        }
        image
    }

    fn folder(modules: &[(&str, &str)]) -> PathBuf {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("virtgauge-modules-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, depends) in modules {
            let info = format!("license=GPL\0depends={depends}\0name={name}\0");
            fs::write(folder.join(format!("{name}.ko")), image(info.as_bytes())).unwrap();
        }
        folder
    }

    fn order(modules: &[(&str, &str)], names: &[&str]) -> Result<Vec<String>, Failure> {
        let folder = folder(modules);
        let result = Modules::in_folder(&folder).and_then(|modules| {
            let paths = modules.in_order(names.iter().copied())?;
            Ok(paths.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect())
        });
        fs::remove_dir_all(folder).unwrap();
        result
    }

    #[test]
    fn dependencies_come_first_and_once_with_either_spelling() {
        let modules =
            [("virtio-net", "net_failover,virtio"), ("net_failover", "failover"), ("failover", ""), ("virtio", "")];
        assert_eq!(
            order(&modules, &["virtio_net", "virtio"]).unwrap(),
            ["failover", "net_failover", "virtio", "virtio-net"]
        );
    }

    #[test]
    fn a_circle_ends_and_a_dependency_without_a_file_is_built_in() {
        assert_eq!(order(&[("a", "b"), ("b", "a,built_in")], &["a"]).unwrap(), ["b", "a"]);
    }

    #[test]
    fn a_named_module_without_a_file_is_an_error_that_lists_what_there_is() {
        let message = order(&[("a", "")], &["c"]).unwrap_err().message;
        assert_eq!(message, "there is no module c; there are: a");
    }

    #[test]
    fn a_module_without_depends_depends_on_nothing() {
        assert_eq!(depends(&image(b"license=GPL\0")), Some(vec![]));
        assert_eq!(depends(b"no elf file"), None);
    }

    #[test]
    fn every_alias_is_told_with_its_module() {
        let folder = folder(&[("plain", "")]);
        let info = b"alias=pci:v00008086d*\0license=GPL\0alias=acpi*:VMBUS:*\0depends=\0";
        fs::write(folder.join("odd-one.ko"), image(info)).unwrap();
        fs::write(folder.join("broken.ko"), b"no module").unwrap();
        let aliases = Modules::in_folder(&folder).unwrap().aliases().unwrap();
        fs::remove_dir_all(folder).unwrap();
        let expected = ["pci:v00008086d*", "acpi*:VMBUS:*"].map(|alias| (alias.to_owned(), "odd_one".to_owned()));
        assert_eq!(aliases, expected);
    }

    proptest! {
        #[test]
        fn damaged_images_are_refused_or_read_but_never_panic(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            kept in any::<prop::sample::Index>(),
        ) {
            let mut image = image(b"depends=a,b\0");
            for (at, byte) in damage {
                let at = at.index(image.len());
                image[at] = byte;
            }
            image.truncate(kept.index(image.len() + 1));
            let _ = depends(&image);
        }
    }
}
