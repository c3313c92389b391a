//! The files that a controller may name: beneath roots that came with the start, and nowhere else; and files without a name.
//!
//! A path is resolved beneath a handle of its root (`openat2(2)` with `RESOLVE_BENEATH` and `RESOLVE_NO_MAGICLINKS`): neither
//! `..`, nor a symbolic link, nor a name that is exchanged meanwhile leads out of it, and no link of `/proc` to what a process
//! has open is followed.  Links that stay beneath the root are, as those of `/sys` do.  Where the kernel lacks the call (Linux
//! before 5.6, gVisor, older filters of system calls), the path is walked name by name, and links are interpreted here.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::channel::bounded::excerpt;
use crate::failure::Failure;

/// What the kernel tells of the guest.
const KERNELS_OWN: [&str; 2] = ["/proc", "/sys"];

/// Most roots of a session.
const MOST: usize = 16;

/// Most symbolic links on one path, as the kernel has it.
const MOST_LINKS: usize = 40;

/// How often a path is resolved anew because something on it was renamed meanwhile.
const MOST_TRIES: usize = 64;

/// Below which the controller may have files made; set once, by the session's first message.
static GIVEN: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Takes the roots that came with the start.
///
/// # Errors
/// One is not an absolute path without `..`, or there are too many: says which.
pub fn give(paths: &[String]) -> Result<(), String> {
    if paths.len() > MOST {
        return Err(format!("roots has {} entries; accepted: at most {MOST}", paths.len()));
    }
    if let Some(path) = paths.iter().find(|path| !is_plain(Path::new(path))) {
        return Err(format!("roots holds {:?}; accepted: absolute paths without ..", excerpt(path)));
    }
    // A process serves one session.
    let _ = GIVEN.set(paths.iter().map(PathBuf::from).collect());
    Ok(())
}

/// Whether a path is one below what the kernel tells of the guest, going by its names.
#[must_use]
pub fn is_the_kernels(path: &str) -> bool {
    let path = Path::new(path);
    is_plain(path) && KERNELS_OWN.iter().any(|root| path.starts_with(root) && path != Path::new(root))
}

/// Opens a file of the kernel's own for reading; one that has nothing to say yet is not waited for.
///
/// # Errors
/// It is not there, cannot be read, or leads out of its root (`EXDEV`, `ELOOP`).
pub fn open_kernels_own(path: &str) -> io::Result<File> {
    let (root, below) = split(Path::new(path), KERNELS_OWN.iter().map(Path::new)).ok_or(Errno::EXDEV)?;
    let file = beneath(&handle(root)?, below, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
    Ok(file.into())
}

/// A folder below one of the session's roots; what is in it is made and removed by name, and no link of such a name followed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    handle: OwnedFd,
    /// The folder that it is in, and its name there; `None` of a root.
    within: Option<(OwnedFd, OsString)>,
}

impl Folder {
    /// Opens it.
    ///
    /// # Errors
    /// It is below no root of the session (`bad-request`), not there, no folder, or leads out of its root.
    pub fn open(path: &str) -> Result<Self, Failure> {
        Self::reached(path, false)
    }

    /// Opens it, and makes what is missing of it, for this user alone.
    ///
    /// # Errors
    /// As of [`Folder::open`], or it cannot be made.
    pub fn make(path: &str) -> Result<Self, Failure> {
        Self::reached(path, true)
    }

    /// The one in which the agent was started, where it makes only files [without a name](Folder::unnamed).
    ///
    /// # Errors
    /// It is not there any more, or cannot be opened.
    pub fn working() -> Result<Self, Failure> {
        let opened = open(".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        let handle = opened.map_err(|errno| Failure::errno("opening the agent's working folder", errno))?;
        Ok(Self { path: PathBuf::from("."), handle, within: None })
    }

    fn reached(path: &str, make: bool) -> Result<Self, Failure> {
        let given = GIVEN.get().map_or(&[][..], Vec::as_slice);
        let found = split(Path::new(path), given.iter().map(PathBuf::as_path)).filter(|_| is_plain(Path::new(path)));
        let Some((root, below)) = found else {
            let accepted = match given {
                [] => "none, for the session began without roots".to_owned(),
                roots => format!("absolute paths without .., below {}", joined(roots)),
            };
            return Err(Failure::bad_request(format!("params.folder: {:?}; accepted: {accepted}", excerpt(path))));
        };
        let failed = |errno: Errno| match errno {
            Errno::EXDEV | Errno::ELOOP => Failure::errno(&format!("{path} leads out of {}", root.display()), errno),
            _ => Failure::errno(&format!("opening {path}"), errno),
        };
        Self::below(root, below, make).map_err(failed)
    }

    fn below(root: &Path, path: &Path, make: bool) -> nix::Result<Self> {
        const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);
        if make {
            // A guest without the shares that it was to have makes them in its own file system.
            let outcome = DirBuilder::new().recursive(true).mode(0o700).create(root);
            outcome.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
        }
        let top = handle(root)?;
        let mut folder = Self { path: root.join(path), handle: beneath(&top, Path::new("."), FOLDER)?, within: None };
        let mut reached = PathBuf::new();
        for name in path {
            reached.push(name);
            let next = match beneath(&top, &reached, FOLDER) {
                Err(Errno::ENOENT) if make => match mkdirat(&folder.handle, name, Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => beneath(&top, &reached, FOLDER)?,
                    Err(errno) => return Err(errno),
                },
                found => found?,
            };
            folder.within = Some((std::mem::replace(&mut folder.handle, next), name.to_owned()));
        }
        Ok(folder)
    }

    /// Makes a file in it, for this user alone, for reading and writing; what had its name has it no more.
    ///
    /// # Errors
    /// It cannot be made, or something else gets its name meanwhile.
    pub fn fresh(&self, name: &str, further: OFlag) -> io::Result<File> {
        self.remove(name);
        Ok(self.opened(name, OFlag::O_EXCL | further)?.into())
    }

    /// Opens a file in it for reading and writing; makes it, for this user alone, where it is missing.
    ///
    /// # Errors
    /// It cannot be made or opened, its name is a link, or it is no file that has this name alone: what has another
    /// name may be one outside.
    pub fn file(&self, name: &str) -> io::Result<File> {
        // A pipe is not waited for.
        let file = File::from(self.opened(name, OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK)?);
        let about = file.metadata()?;
        if about.is_file() && about.nlink() == 1 { Ok(file) } else { Err(Errno::EMLINK.into()) }
    }

    /// Makes a file in it for reading and writing that has no name, and is gone with its last user, however that ends.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn unnamed(&self) -> io::Result<File> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        // By O_TMPFILE not every filesystem makes one.
        let name = format!(".virtgauge-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let file = self.opened(&name, OFlag::O_EXCL)?;
        unlinkat(&self.handle, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
        Ok(file.into())
    }

    fn opened(&self, name: &str, further: OFlag) -> nix::Result<OwnedFd> {
        beneath(&self.handle, Path::new(name), OFlag::O_RDWR | OFlag::O_CREAT | further)
    }

    /// Removes a file in it; one that is not there is as good.
    pub fn remove(&self, name: &str) {
        let _ = unlinkat(&self.handle, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Removes the folder itself, when nothing else is in it.
    pub fn remove_if_empty(&self) {
        if let Some((within, name)) = &self.within {
            let _ = unlinkat(within, name.as_os_str(), UnlinkatFlags::RemoveDir);
        }
    }

    /// Where it is, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// The name of a file in a folder; goes with this.
#[derive(Debug)]
pub struct Removal(Arc<Folder>, String);

impl Removal {
    /// Removes the file when this is dropped.
    #[must_use]
    pub fn of(folder: Arc<Folder>, name: String) -> Self {
        Self(folder, name)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.0.remove(&self.1);
    }
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn joined(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The innermost root of a path, and the path below it.
fn split<'a>(path: &'a Path, roots: impl Iterator<Item = &'a Path>) -> Option<(&'a Path, &'a Path)> {
    roots.filter_map(|root| Some((root, path.strip_prefix(root).ok()?))).max_by_key(|(root, _)| root.as_os_str().len())
}

fn handle(root: &Path) -> nix::Result<OwnedFd> {
    open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Opens what a relative path leads to from a folder, which it does not leave.
fn beneath(folder: &impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlag::O_CLOEXEC;
    let bounds = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).mode(mode(flags)).resolve(bounds);
    for _ in 0..MOST_TRIES {
        match openat2(folder, path, how) {
            Err(Errno::EAGAIN) => {}
            Err(Errno::ENOSYS | Errno::EPERM) => return walked(folder, path, flags),
            answer => return answer,
        }
    }
    Err(Errno::EAGAIN)
}

/// The same without `openat2`: the kernel is given one name at a time and follows no link; `..` goes back to a handle that is
/// held, never to what is above the folder by now.
fn walked(folder: &impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let mut passed: Vec<OwnedFd> = Vec::new();
    let mut ahead: Vec<OsString> = reversed(path);
    let mut links = 0;
    loop {
        let here = passed.last().map_or(folder.as_fd(), AsFd::as_fd);
        let Some(name) = ahead.pop() else { return openat(here, ".", flags, Mode::empty()) };
        if name == ".." {
            passed.pop().ok_or(Errno::EXDEV)?;
            continue;
        }
        let last = ahead.is_empty();
        // An error other than "no link" is one of the opening, too.
        if let Ok(target) = readlinkat(here, name.as_os_str()) {
            links += 1;
            if links > MOST_LINKS || (last && flags.contains(OFlag::O_NOFOLLOW)) {
                return Err(Errno::ELOOP);
            }
            // Those of /proc to open files are absolute, or name nothing that is here.
            if Path::new(&target).is_absolute() {
                return Err(Errno::EXDEV);
            }
            ahead.extend(reversed(Path::new(&target)));
            continue;
        }
        let wanted = if last { flags } else { OFlag::O_PATH | OFlag::O_DIRECTORY };
        let next = openat(here, name.as_os_str(), wanted | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, mode(wanted))?;
        if last {
            return Ok(next);
        }
        passed.push(next);
    }
}

fn reversed(path: &Path) -> Vec<OsString> {
    path.iter().rev().filter(|name| *name != OsStr::new(".")).map(OsStr::to_owned).collect()
}

fn mode(flags: OFlag) -> Mode {
    if flags.contains(OFlag::O_CREAT) { Mode::S_IRUSR | Mode::S_IWUSR } else { Mode::empty() }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use nix::unistd::mkfifo;

    use super::*;
    use crate::failure::Code;

    type Opening = fn(&OwnedFd, &Path, OFlag) -> nix::Result<OwnedFd>;

    /// With the kernel's own call, and without it.
    const BOTH: [Opening; 2] = [
        |folder, path, flags| beneath(folder, path, flags),
        |folder, path, flags| walked(folder, path, flags | OFlag::O_CLOEXEC),
    ];

    /// Gives the one root of all tests of this process.
    pub(crate) fn give_temporary() -> PathBuf {
        let root = std::env::temp_dir();
        give(&[root.to_str().unwrap().to_owned()]).unwrap();
        root
    }

    /// A root with a file, a folder beside it with a secret, and links of every kind.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let tree = Self(std::env::temp_dir().join(format!("virtgauge-roots-{}-{name}", std::process::id())));
            fs::create_dir_all(tree.root().join("inner/deeper")).unwrap();
            fs::create_dir_all(tree.0.join("outside")).unwrap();
            fs::write(tree.root().join("inner/file"), "inside").unwrap();
            fs::write(tree.0.join("outside/file"), "secret").unwrap();
            for (link, target) in [
                ("near", "inner/file".to_owned()),
                ("inner/deeper/back", "../file".to_owned()),
                ("out", "../outside/file".to_owned()),
                ("folder-out", "../outside".to_owned()),
                ("absolute", tree.0.join("outside/file").to_str().unwrap().to_owned()),
                ("absolute-inside", tree.root().join("inner/file").to_str().unwrap().to_owned()),
                ("round", "round".to_owned()),
                ("there-and-back", "../root/inner/file".to_owned()),
            ] {
                symlink(target, tree.root().join(link)).unwrap();
            }
            tree
        }

        fn root(&self) -> PathBuf {
            self.0.join("root")
        }

        fn handle(&self) -> OwnedFd {
            handle(&self.root()).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn content(opened: nix::Result<OwnedFd>) -> Result<String, Errno> {
        let mut text = String::new();
        File::from(opened?).read_to_string(&mut text).map_err(|_| Errno::EIO)?;
        Ok(text)
    }

    #[test]
    fn a_link_is_followed_as_long_as_it_stays_beneath() {
        let tree = Tree::new("inside");
        for open in BOTH {
            for path in ["inner/file", "near", "inner/deeper/back", "inner/../near", "./inner/./file"] {
                assert_eq!(
                    content(open(&tree.handle(), Path::new(path), OFlag::O_RDONLY)),
                    Ok("inside".into()),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn nothing_leads_out() {
        let tree = Tree::new("outside");
        let absolute = tree.0.join("outside/file");
        for open in BOTH {
            for (path, errno) in [
                ("out", Errno::EXDEV),
                ("folder-out/file", Errno::EXDEV),
                ("absolute", Errno::EXDEV),
                ("absolute-inside", Errno::EXDEV),
                ("there-and-back", Errno::EXDEV),
                ("../outside/file", Errno::EXDEV),
                ("inner/../../outside/file", Errno::EXDEV),
                ("..", Errno::EXDEV),
                ("round", Errno::ELOOP),
                ("missing", Errno::ENOENT),
                ("inner/file/below", Errno::ENOTDIR),
            ] {
                assert_eq!(content(open(&tree.handle(), Path::new(path), OFlag::O_RDONLY)), Err(errno), "{path}");
                // Neither is a file made there.
                assert!(
                    open(&tree.handle(), Path::new(path), OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL).is_err()
                        == (path != "missing")
                );
                let _ = fs::remove_file(tree.root().join("missing"));
            }
        }
        assert_eq!(fs::read_to_string(absolute).unwrap(), "secret");
    }

    #[test]
    fn links_to_what_a_process_has_open_are_not_followed() {
        let open_file = File::open("/etc/passwd").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open_file);
        let proc = handle(Path::new("/proc")).unwrap();
        for open in BOTH {
            for path in [
                "self/root/etc/passwd".to_owned(),
                "self/cwd/Cargo.toml".to_owned(),
                "self/exe".to_owned(),
                "thread-self/root/etc/passwd".to_owned(),
                format!("self/fd/{descriptor}"),
                format!("{}/task/{0}/root/etc/passwd", std::process::id()),
            ] {
                assert!(content(open(&proc, Path::new(&path), OFlag::O_RDONLY)).is_err(), "{path}");
            }
            // Its other links are.
            assert!(content(open(&proc, Path::new("mounts"), OFlag::O_RDONLY)).is_ok_and(|text| text.contains("proc")));
        }
    }

    #[test]
    fn links_of_sys_lead_to_the_devices() {
        let sys = handle(Path::new("/sys")).unwrap();
        for open in BOTH {
            let name = Path::new("class/net/lo/address");
            assert!(content(open(&sys, name, OFlag::O_RDONLY)).is_ok_and(|text| text.contains("00:00")));
        }
    }

    #[test]
    fn exchanging_a_folder_for_a_link_wins_no_race() {
        let tree = Tree::new("race");
        let (folder, aside, link) = (tree.root().join("turn"), tree.root().join("aside"), tree.root().join("link"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "inside").unwrap();
        symlink("../outside", &link).unwrap();
        let stop = AtomicBool::new(false);
        let (mut opened, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (from, to) in [(&folder, &aside), (&link, &folder), (&folder, &link), (&aside, &folder)] {
                        fs::rename(from, to).unwrap();
                    }
                }
            });
            for open in BOTH {
                for _ in 0..20_000 {
                    match content(open(&tree.handle(), Path::new("turn/file"), OFlag::O_RDONLY)) {
                        Ok(text) => {
                            assert_eq!(text, "inside");
                            opened += 1;
                        }
                        Err(_) => refused += 1,
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused: there was no race");
    }

    #[test]
    fn a_folder_is_made_below_its_root_and_goes_when_it_is_empty() {
        let root = give_temporary().join(format!("virtgauge-roots-{}-made", std::process::id()));
        let path = root.join("one/two");
        let folder = Arc::new(Folder::make(path.to_str().unwrap()).unwrap());
        let removal = Removal::of(Arc::clone(&folder), "kept".into());
        drop(folder.file("kept").unwrap());
        symlink("/etc/passwd", path.join("link")).unwrap();
        assert_eq!(folder.file("link").unwrap_err().raw_os_error(), Some(Errno::ELOOP as i32));
        folder.remove_if_empty();
        assert!(path.join("kept").exists());
        drop(removal);
        folder.remove("link");
        folder.remove_if_empty();
        assert!(!path.exists() && root.join("one").exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_file_with_another_name_or_of_another_kind_is_not_opened_and_a_fresh_one_is_new() {
        let tree = Tree::new("names");
        give_temporary();
        let folder = Folder::open(tree.root().to_str().unwrap()).unwrap();
        let secret = tree.0.join("outside/file");
        fs::hard_link(&secret, tree.root().join("linked")).unwrap();
        symlink(&secret, tree.root().join("symbolic")).unwrap();
        mkfifo(&tree.root().join("pipe"), Mode::S_IRWXU).unwrap();
        for (name, errno) in [("linked", Errno::EMLINK), ("pipe", Errno::EMLINK), ("symbolic", Errno::ELOOP)] {
            assert_eq!(folder.file(name).unwrap_err().raw_os_error(), Some(errno as i32), "{name}");
            let fresh = folder.fresh(name, OFlag::empty()).unwrap();
            fresh.set_len(1).unwrap();
            assert_eq!(folder.file(name).unwrap().metadata().unwrap().ino(), fresh.metadata().unwrap().ino());
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    }

    #[test]
    fn a_folder_below_no_root_or_through_a_link_is_refused() {
        let tree = Tree::new("refused");
        give_temporary();
        let of = |path: &Path| Folder::make(path.to_str().unwrap()).unwrap_err();
        for path in ["/etc", "/", "relative", "/proc/self", &format!("{}/../etc", tree.0.display())] {
            assert_eq!(of(Path::new(path)).code, Code::BadRequest, "{path}");
        }
        // The root of these tests is above the tree: only a link that leaves that is refused.
        symlink("/etc", tree.root().join("etc")).unwrap();
        let failure = of(&tree.root().join("etc/virtgauge"));
        assert_eq!((failure.code, failure.errno), (Code::Os, Some(Errno::EXDEV as i32)));
        assert!(failure.message.contains("leads out of"), "{failure}");
        let missing = Folder::open(tree.root().join("missing").to_str().unwrap()).unwrap_err();
        assert_eq!(missing.errno, Some(Errno::ENOENT as i32));
    }

    #[test]
    fn a_root_that_is_not_there_is_made_with_what_is_below() {
        let tree = Tree::new("missing");
        let root = tree.0.join("share/of/host");
        assert_eq!(Folder::below(&root, Path::new("own"), false).unwrap_err(), Errno::ENOENT);
        Folder::below(&root, Path::new("own"), true).unwrap();
        assert!(root.join("own").is_dir());
    }

    #[test]
    fn roots_are_absolute_and_few() {
        for wrong in [vec!["relative".to_owned()], vec!["/a/../b".to_owned()], vec!["/a".to_owned(); MOST + 1]] {
            assert!(give(&wrong).is_err(), "{wrong:?}");
        }
    }
}
