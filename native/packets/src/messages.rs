//! Many messages for one system call, `sendmmsg` or `recvmmsg`.

/// A message for each piece of memory.  They lead to the descriptions of these pieces, which must stay where they are.
pub fn leading_to(vectors: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let message = |vector: &mut libc::iovec| {
        // SAFETY: a message header is pointers and integers, for which zero is a value.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = vector;
        message.msg_hdr.msg_iovlen = 1;
        message
    };
    vectors.iter_mut().map(message).collect()
}
