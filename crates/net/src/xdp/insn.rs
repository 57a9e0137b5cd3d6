//! Instructions of BPF programs.

/// An instruction in the kernel's layout (`struct bpf_insn` of linux/bpf.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Insn {
    pub(super) code: u8,
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}
