//! Policy, priority and memory policy of the calling thread: sched_setattr(2) and set_mempolicy(2), which neither nix nor
//! the standard library offers.

#![allow(unsafe_code)]

use super::profile::{Policy, Sched};
use nix::errno::Errno;
use nix::libc;
use std::io;
use topolab_wire::CpuSet;

/// The first version of struct sched_attr (include/uapi/linux/sched/types.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Sets policy and priority.
pub(super) fn set(sched: Sched) -> io::Result<()> {
    let policy = match sched.policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Batch => libc::SCHED_BATCH,
        Policy::Idle => libc::SCHED_IDLE,
        Policy::Fifo => libc::SCHED_FIFO,
        Policy::Rr => libc::SCHED_RR,
    };
    let (nice, priority) = match sched.policy {
        Policy::Other | Policy::Batch | Policy::Idle => (sched.priority, 0),
        Policy::Fifo | Policy::Rr => (0, sched.priority.unsigned_abs()),
    };
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { size, policy: policy.unsigned_abs(), nice, priority, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of the attributes, which live as long as this call; thread 0 is the calling one.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    Ok(Errno::result(result).map(drop)?)
}

/// Allows memory of these nodes only.
pub(super) fn bind_memory(nodes: &CpuSet) -> io::Result<()> {
    let words = nodes.last().unwrap_or(0) as usize / 64 + 1;
    let mut mask = vec![0u64; words];
    for node in nodes.iter() {
        mask[node as usize / 64] |= 1 << (node % 64);
    }
    // The kernel takes one bit less than it is told (mm/mempolicy.c, get_nodes).
    let bits = words * 64 + 1;
    // SAFETY: the kernel reads `bits - 1` bits, which is `words` words of 64 bits, of the mask, which lives as long as this call.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), bits) };
    Ok(Errno::result(result).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nineteenth field after the command's name in parentheses is the nice value, 41st of all the policy (proc(5)).
    fn nice_and_policy() -> (String, String) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
        let after = stat.rsplit(") ").next().expect("a name");
        let fields: Vec<&str> = after.split(' ').collect();
        (fields[16].to_string(), fields[38].to_string())
    }

    #[test]
    fn a_thread_becomes_nice_batch_and_idle() {
        std::thread::spawn(|| {
            set(Sched { policy: Policy::Other, priority: 3 }).expect("nicer");
            assert_eq!(nice_and_policy(), ("3".into(), "0".into()));
            set(Sched { policy: Policy::Batch, priority: 5 }).expect("nicer");
            assert_eq!(nice_and_policy(), ("5".into(), "3".into()));
            set(Sched { policy: Policy::Idle, priority: 5 }).expect("idle");
            assert_eq!(nice_and_policy().1, "5");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn memory_of_a_node_that_is_not_there_is_refused() {
        std::thread::spawn(|| assert!(bind_memory(&CpuSet::range(900, 901)).is_err())).join().expect("no panic");
    }
}
