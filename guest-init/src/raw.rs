//! System calls of a child that shares the agent's memory until execve.
//!
//! The C library leaves an error in `errno`, which such a child has in common with the agent: it would
//! overwrite what a call of the agent's has just left there. These calls touch nothing but what they
//! are given. Nor do those of rustix, which makes its system calls itself.
#![allow(unsafe_code, reason = "system calls by number")]

use std::arch::asm;
use std::ffi::{CStr, c_char};
use std::ptr;

use rustix::io::Errno;

/// What the kernel knows as a signal's disposition: handler, flags, restorer, mask.
type Disposition = [u64; 4];

/// A set of signals as the kernel takes it, in bytes.
const SIGNALS: u64 = 8;

/// # Safety
/// As the call that has this number.
unsafe fn call(number: libc::c_long, [a, b, c, d]: [u64; 4]) -> i64 {
    let result: i64;
    // SAFETY: the kernel preserves all registers but these three; what the call does with memory is
    // the caller's to answer for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

/// Errors are the negative of their number.
fn errno(result: i64) -> Errno {
    let number = i32::try_from(result.wrapping_neg()).unwrap_or(libc::EINVAL);
    Errno::from_raw_os_error(number)
}

/// Makes a child, which begins with `entry` on the stack that `args` names. Returns its pid.
///
/// # Safety
/// `args` is right, its stack is nobody else's and large enough, and if memory is shared, all that
/// the child is given lives until the child has left it, by execve or by its end.
pub(crate) unsafe fn clone<A, B>(
    args: &mut libc::clone_args,
    entry: extern "C" fn(&A, Option<&mut B>) -> !,
    first: &A,
    second: Option<&mut B>,
) -> Result<i32, Errno> {
    let second = second.map_or(ptr::null_mut(), ptr::from_mut);
    let result: i64;
    // SAFETY: the parent comes out of this as out of any system call. The child has zero in rax and an
    // empty stack, aligned for a call; it never returns to what is behind.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "mov rsi, r13",
            "call r14",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") ptr::from_mut(args),
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") ptr::from_ref(first),
            in("r13") second,
            in("r14") entry,
            out("rcx") _,
            out("r11") _,
        );
    }
    i32::try_from(result)
        .ok()
        .filter(|pid| *pid > 0)
        .ok_or_else(|| errno(result))
}

/// Returns only on failure.
///
/// # Safety
/// Both arrays end with a null pointer, and what they point to with a NUL.
pub(crate) unsafe fn execve(
    file: &CStr,
    argv: *const *const c_char,
    env: *const *const c_char,
) -> Errno {
    let arguments = [file.as_ptr() as u64, argv as u64, env as u64, 0];
    // SAFETY: the path ends with a NUL; the arrays are the caller's.
    errno(unsafe { call(libc::SYS_execve, arguments) })
}

/// Closes the descriptors from `first` to `last`. A kernel without the call leaves them open.
///
/// # Safety
/// This process uses none of them again.
pub(crate) unsafe fn close_range(first: u32, last: u32) {
    // SAFETY: no memory is passed; the descriptors are the caller's.
    unsafe { call(libc::SYS_close_range, [first.into(), last.into(), 0, 0]) };
}

/// Gives a signal its default disposition.
pub(crate) fn default_signal(signal: i32) {
    let default: Disposition = [libc::SIG_DFL as u64, 0, 0, 0];
    let new = (&raw const default) as u64;
    let signal = u64::from(signal.unsigned_abs());
    // SAFETY: the record lives for the call; the default runs no code of ours.
    unsafe { call(libc::SYS_rt_sigaction, [signal, new, 0, SIGNALS]) };
}

/// Unblocks every signal for this thread.
pub(crate) fn unblock_signals() {
    let none = 0_u64;
    let how = u64::from(libc::SIG_SETMASK.unsigned_abs());
    // SAFETY: the set lives for the call, which changes only this thread's mask.
    unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [how, (&raw const none) as u64, 0, SIGNALS],
        )
    };
}

/// Ends this process and runs nothing before.
pub(crate) fn exit(code: u8) -> ! {
    loop {
        // SAFETY: no memory is passed.
        unsafe { call(libc::SYS_exit_group, [code.into(), 0, 0, 0]) };
    }
}
