//! How much memory one thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};

use crate::line_of;

/// A request that is refused: what would ask for it in earnest would take the machine down.
const LARGEST: usize = 1 << 30;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The system's allocator, which counts for each thread; the global one of a test that calls [`fuzz`](crate::fuzz).
pub struct Watched;

// SAFETY: the system's allocator does it; the counters of a thread allocate nothing.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !grow(size) {
            return std::ptr::null_mut();
        }
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn grow(size: usize) -> bool {
    if size > LARGEST {
        // The process ends by this: whoever looks for the cause has the input.
        INPUT.with_borrow(|input| eprintln!("{size} bytes of memory were asked for by\n{}", line_of(input)));
        return false;
    }
    let held = HELD.get().wrapping_add(size);
    HELD.set(held);
    // What another thread made and this one freed makes the difference negative.
    if (held as isize) > MOST.get() as isize {
        MOST.set(held);
    }
    true
}

fn shrink(size: usize) {
    HELD.set(HELD.get().wrapping_sub(size));
}

/// The most bytes that this thread held beyond what it had before.
pub(crate) fn most_held(input: &[u8], work: impl FnOnce()) -> usize {
    INPUT.with_borrow_mut(|kept| {
        kept.clear();
        kept.extend_from_slice(input);
    });
    let before = HELD.get();
    MOST.set(before);
    work();
    MOST.get().wrapping_sub(before)
}
