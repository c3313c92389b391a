//! Network namespaces for tests.  They live as long as the thread that made them and its children.

#![allow(dead_code, unreachable_pub, reason = "each test program includes it and uses its own part")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

/// Moves the calling thread into a new network namespace; what it starts from now on is there, too.
pub fn enter_new() -> File {
    // SAFETY: no memory is involved.
    let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    let error = std::io::Error::last_os_error();
    assert_eq!(answer, 0, "these tests make network namespaces and must run as root: {error}");
    let own = File::open("/proc/thread-self/ns/net").unwrap();
    run("ip link set dev lo up");
    own
}

/// Moves the calling thread into a namespace that was made before.
pub fn enter(namespace: &File) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
}

/// Runs a program in the calling thread's namespace.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Address of the sending end of [`pair`].
pub const NEAR: &str = "10.77.0.1";

/// Address of the listening end.
pub const FAR: &str = "10.77.0.2";

/// Two namespaces joined by a virtual pair, `near` and `far`; the calling thread is in the first.  The other is returned.
pub fn pair() -> File {
    let far = std::thread::spawn(enter_new).join().unwrap();
    enter_new();
    let descriptor = far.as_raw_fd();
    let own = std::process::id();
    run(&format!("ip link add name near type veth peer name far netns /proc/{own}/fd/{descriptor}"));
    run(&format!("ip address add {NEAR}/24 dev near"));
    run("ip link set dev near up");
    within(&far, || {
        run(&format!("ip address add {FAR}/24 dev far"));
        run("ip link set dev far up");
    });
    far
}

/// Does something in another namespace, on a thread of its own.
pub fn within<T: Send>(namespace: &File, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            what()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Does something on a thread of its own, whose namespaces end with it.
pub fn apart<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(what).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
