//! The host's programs inside a machine: its system folders, seen through 9p or hostfs, as the machine's own root.
//!
//! The new root is in memory.  It holds the host's folders and links under the paths that they have there, the kernel's
//! file systems as they are mounted by now, and the folders that every system has, empty.  A folder that programs may
//! want to change has a private layer above it, in memory too.

use std::borrow::Cow;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot, sethostname};

use super::machine;
use crate::failure::Failure;
use crate::network::{self, Interface};

const NEW_ROOT: &str = "/new-root";

/// What the private layers are made of, in the new root.
const LAYERS: &str = ".overlay";

/// Empty folders of the new root; those that are mounted already move there with what they hold.
const FOLDERS: [(&str, u32); 10] = [
    ("proc", 0o755),
    ("sys", 0o755),
    ("dev", 0o755),
    ("run", 0o755),
    ("tmp", 0o1777),
    ("root", 0o700),
    ("home", 0o755),
    ("var", 0o755),
    ("mnt", 0o755),
    ("srv", 0o755),
];
const MOVED: [&str; 5] = ["proc", "sys", "dev", "run", "tmp"];

/// The host may change nothing below a read-only export while the machine runs, so that all of it may be cached.  What
/// it shares for writing is read and written through; only mapped files are cached.
const CACHED: &str = "trans=virtio,version=9p2000.L,msize=262144,cache=loose";
const WRITTEN_THROUGH: &str = "trans=virtio,version=9p2000.L,msize=262144,cache=mmap";

/// As container engines set it, and for the same programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// By what the host's folders are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exports {
    /// Virtio's 9p; a source is a mount tag.
    Plan9,
    /// User Mode Linux's own; a source is a path below the folder to which the host confines it.
    Hostfs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A symbolic link; the source is where it leads.
    Link,
    /// An export below a private layer.
    Lower,
    /// An export for reading.
    Read,
    /// An export for reading and writing.
    Write,
}

/// Something of the host in the new root.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    kind: Kind,
    /// Below the root.
    path: PathBuf,
    source: String,
}

/// The parts that `virtgauge.root` names: `KIND:PATH:SOURCE`, separated by commas.
fn parts(setting: &str) -> Result<Vec<Part>, Failure> {
    let part = |text: &str| {
        let mut fields = text.splitn(3, ':');
        let kind = match fields.next()? {
            "link" => Kind::Link,
            "lower" => Kind::Lower,
            "read" => Kind::Read,
            "write" => Kind::Write,
            _ => return None,
        };
        let path = unescaped(fields.next()?)?;
        let path = Path::new(OsStr::from_bytes(&path)).strip_prefix("/").ok()?.to_path_buf();
        let source = String::from_utf8(unescaped(fields.next()?)?.into_owned()).ok()?;
        Some(Part { kind, path, source })
    };
    let parse = |text| {
        part(text).ok_or_else(|| {
            let accepted = "link, lower, read or write, then :PATH:SOURCE";
            Failure::bad_request(format!("virtgauge.root has {text:?}; accepted: {accepted}"))
        })
    };
    setting.split(',').map(parse).collect()
}

/// A text in which `%2C` stands for a comma, and so on; `None` where what follows a percent sign is no byte.
pub(super) fn unescaped(text: &str) -> Option<Cow<'_, [u8]>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let mut pieces = text.as_bytes().split(|&byte| byte == b'%');
    let mut bytes = pieces.next()?.to_vec();
    for piece in pieces {
        let digits = std::str::from_utf8(piece.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece[2..]);
    }
    Some(Cow::Owned(bytes))
}

impl Exports {
    fn named(setting: Option<&str>) -> Result<Self, Failure> {
        match setting {
            None | Some("9p") => Ok(Self::Plan9),
            Some("hostfs") => Ok(Self::Hostfs),
            Some(other) => Err(Failure::bad_request(format!("virtgauge.exports is {other:?}; accepted: 9p, hostfs"))),
        }
    }

    fn attach(self, source: &str, folder: &Path, access: Access) -> Result<(), Failure> {
        let flags = MsFlags::MS_NODEV | if access == Access::Read { MsFlags::MS_RDONLY } else { MsFlags::empty() };
        match (self, access) {
            (Self::Plan9, Access::Read) => attach(source, folder, "9p", flags, CACHED),
            (Self::Plan9, Access::Write) => attach(source, folder, "9p", flags, WRITTEN_THROUGH),
            (Self::Hostfs, _) => attach("hostfs", folder, "hostfs", flags, source),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Makes the new root and goes there.
pub(super) fn switch(setting: &str, exports: Option<&str>) -> Result<(), Failure> {
    let (parts, exports) = (parts(setting)?, Exports::named(exports)?);
    let root = Path::new(NEW_ROOT);
    make_folder(root, 0o755)?;
    attach("tmpfs", root, "tmpfs", MsFlags::empty(), "mode=0755")?;
    for (name, mode) in FOLDERS {
        make_folder(&root.join(name), mode)?;
    }
    for name in MOVED {
        let old = Path::new("/").join(name);
        match mount(Some(&old), &root.join(name), None::<&str>, MsFlags::MS_MOVE, None::<&str>) {
            // What the machine does without was not mounted.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(errno) => return Err(Failure::unsupported(format!("cannot move {}: {errno}", old.display()))),
        }
    }
    for (number, part) in parts.iter().enumerate() {
        add(root, number, part, exports)?;
    }
    enter(root).map_err(|errno| Failure::unsupported(format!("cannot change to the new root: {errno}")))?;
    furnish();
    Ok(())
}

fn add(root: &Path, number: usize, part: &Part, exports: Exports) -> Result<(), Failure> {
    let folder = root.join(&part.path);
    let source = part.source.as_str();
    if part.kind == Kind::Link {
        return symlink(source, &folder)
            .map_err(|error| Failure::os(&format!("cannot link {} to {source}", folder.display()), &error));
    }
    make_folder(&folder, 0o755)?;
    match part.kind {
        Kind::Link => Ok(()),
        Kind::Read => exports.attach(source, &folder, Access::Read),
        Kind::Write => exports.attach(source, &folder, Access::Write),
        Kind::Lower => {
            let layers = root.join(LAYERS).join(number.to_string());
            let layer = |name: &str| layers.join(name);
            for name in ["lower", "upper", "work"] {
                make_folder(&layer(name), 0o755)?;
            }
            exports.attach(source, &layer("lower"), Access::Read)?;
            let options = ["lower", "upper", "work"].map(|name| format!("{name}dir={}", layer(name).display()));
            attach("overlay", &folder, "overlay", MsFlags::MS_NODEV, &options.join(","))
        }
    }
}

fn enter(root: &Path) -> nix::Result<()> {
    chdir(root)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
    chroot(".")?;
    chdir("/")
}

/// What programs of a whole system take for granted; without it most run all the same.
fn furnish() {
    let missing = |what: &str, why: &dyn std::fmt::Display| machine::say(&format!("{what} is missing: {why}"));
    let shared = Path::new("/dev/shm");
    if let Err(why) = make_folder(shared, 0o1777)
        .and_then(|()| attach("tmpfs", shared, "tmpfs", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=1777"))
    {
        missing("/dev/shm", &why);
    }
    for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let _ = symlink(format!("/proc/self/fd{target}"), format!("/dev/{link}"));
    }
    if let Err(why) = sethostname("virtgauge") {
        missing("the host's name", &why);
    }
    let loopback = Interface { name: Some("lo".into()), ..Interface::default() };
    if let Err(why) = network::configure(&[loopback], false) {
        missing("the loopback", &why);
    }
    // SAFETY: no other thread exists yet that could read the environment.
    unsafe {
        env::set_var("PATH", PATH);
        env::set_var("HOME", "/root");
    }
}

/// A folder and those above it, where they are absent; with this mode if it is new.
pub(super) fn make_folder(folder: &Path, mode: u32) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::os(&format!("cannot make {}", folder.display()), &error);
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(failed)?;
    fs::set_permissions(folder, Permissions::from_mode(mode)).map_err(failed)
}

/// Mounts what the machine is of no use without.
pub(super) fn attach(source: &str, folder: &Path, kind: &str, flags: MsFlags, options: &str) -> Result<(), Failure> {
    mount(Some(source), folder, Some(kind), flags, Some(options)).map_err(|errno| {
        Failure::unsupported(format!("cannot mount {source} ({kind}) on {}: {errno}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exports_are_9p_unless_it_is_said() {
        assert_eq!(Exports::named(None), Ok(Exports::Plan9));
        assert_eq!(Exports::named(Some("hostfs")), Ok(Exports::Hostfs));
        let message = Exports::named(Some("nfs")).unwrap_err().message;
        assert!(message.contains("accepted: 9p, hostfs"), "{message}");
    }

    #[test]
    fn parts_are_of_a_kind_at_an_absolute_path() {
        let found = parts("link:/bin:usr/bin,lower:/usr:root0,write:/a%2C%20b:root1").unwrap();
        let part = |kind, path: &str, source: &str| Part { kind, path: path.into(), source: source.into() };
        let expected =
            [part(Kind::Link, "bin", "usr/bin"), part(Kind::Lower, "usr", "root0"), part(Kind::Write, "a, b", "root1")];
        assert_eq!(found, expected);
        for wrong in ["", "copy:/usr:root0", "read:usr:root0", "read:/usr", "read:/%zz:root0", "read:/usr:root0,"] {
            let message = parts(wrong).unwrap_err().message;
            assert!(message.contains("accepted"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn what_is_escaped_comes_back_and_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..40), any_text in ".*") {
            let text = bytes.iter().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
            prop_assert_eq!(unescaped(&text).unwrap().into_owned(), bytes);
            let _ = unescaped(&any_text);
        }
    }
}
