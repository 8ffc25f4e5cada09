//! The processor state that `xsave` saves, made to fit the features that are left (leaf 0xD).
//!
//! A guest that sees a component without the feature that uses it, or sizes that do not add up, warns
//! and may switch `xsave` off altogether.

use kvm_bindings::kvm_cpuid_entry2;

use super::has;

const LEAF: u32 = 0xd;
/// The legacy area and the header, which are always there.
const BASE_LEN: u32 = 576;
/// The first component with a subleaf of its own.
const FIRST_OWN: u32 = 2;

/// Components, by their bits, of features that can be hidden. What is not here stays.
const COMPONENTS: [(&str, u64); 5] = [
    ("avx", 1 << 2),
    ("mpx", 0b11 << 3),
    ("avx512f", 0b111 << 5),
    ("pku", 1 << 9),
    ("amx_tile", 0b11 << 17),
];

/// Takes components out of the leaf whose feature is not there, and the leaf without `xsave`.
pub(super) fn fit(leaves: &mut Vec<kvm_cpuid_entry2>) {
    if !has(leaves, "xsave") {
        leaves.retain(|entry| entry.function != LEAF);
        return;
    }
    let gone = COMPONENTS
        .into_iter()
        .filter(|(feature, _)| !has(leaves, feature))
        .fold(0, |gone, (_, bits)| gone | bits);
    let is_gone =
        |index: u32| index >= FIRST_OWN && 1u64.checked_shl(index).unwrap_or(0) & gone != 0;
    leaves.retain(|entry| entry.function != LEAF || !is_gone(entry.index));
    // In the standard format each component has a place of its own: EAX is its length, EBX its
    // offset. Those of supervisor state (ECX bit 0) are only in the compacted one.
    let len = leaves
        .iter()
        .filter(|entry| entry.function == LEAF && entry.index >= FIRST_OWN && entry.ecx & 1 == 0)
        .map(|entry| entry.ebx.saturating_add(entry.eax))
        .fold(BASE_LEN, u32::max);
    let (low, high) = (gone as u32, (gone >> 32) as u32);
    let main = leaves
        .iter_mut()
        .find(|entry| (entry.function, entry.index) == (LEAF, 0));
    if let Some(entry) = main {
        entry.eax &= !low;
        entry.edx &= !high;
        entry.ecx = len;
        // For what is switched on, which KVM keeps up to date.
        entry.ebx = entry.ebx.min(len);
    }
}
