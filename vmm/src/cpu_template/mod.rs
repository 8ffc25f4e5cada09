//! Which of the host processor's features a guest is shown.
//!
//! Owns the template, what it does to KVM's list of supported features, and what may not be hidden.
//! Knows nothing of processor numbers and topology, which [`crate::vcpu::cpuid`] puts in afterwards.
//! [`features`] has the table of names, [`xsave`] what saved state goes with them.

mod features;
mod saved;
mod xsave;

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

use crate::error::{HostError, UsageError};
pub(crate) use saved::SavedTemplateV1;

use features::{FEATURES, FLAGS, Feature, NEEDED};

/// The builder's method.
const FIELD: &str = "cpu_template";

/// What a guest's `cpuid` may say of the host's processor: all of it, or less.
///
/// A template only takes away: a feature that the host has not got is not there with any template.
/// Two hosts show their guests the same processor if what a template leaves is the same on both;
/// [`x86_64_v2`](Self::x86_64_v2) and [`x86_64_v3`](Self::x86_64_v3) leave what all usual hosts have.
///
/// A hidden feature takes with it what depends on it (`avx` takes `avx2`), and the processor state
/// that only it uses from what `xsave` saves. Hiding is not forbidding: a program that executes the
/// instruction without asking will often find that it works.
///
/// What a guest of this library cannot boot without cannot be hidden; the start then fails and names
/// it.
///
/// ```
/// use forebay::{CpuTemplate, Vm};
///
/// // A guest that draws no random numbers from the processor and has no wide vectors.
/// let template = CpuTemplate::host()
///     .without("rdrand")
///     .without("rdseed")
///     .without("avx");
/// let builder = Vm::builder().cpu_template(template);
/// # let _ = builder;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuTemplate {
    level: Option<Level>,
    hidden: Vec<String>,
    masks: Vec<Mask>,
}

/// A level of the x86-64 ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    V2,
    V3,
}

/// A register of `cpuid`'s answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // their names
pub enum CpuidRegister {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

/// Bits to be cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mask {
    place: Place,
    bits: u32,
}

/// A register of feature flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    leaf: u32,
    subleaf: u32,
    register: CpuidRegister,
}

impl CpuTemplate {
    /// All that the host and its KVM have to offer. The default.
    #[must_use]
    pub fn host() -> Self {
        Self::default()
    }

    /// What the level x86-64-v2 of the ABI asks for (SSE4.2, `popcnt`, `cx16`), what a guest needs to
    /// run, and the flags about protection against speculation: hosts from 2009 on.
    #[must_use]
    pub fn x86_64_v2() -> Self {
        Self {
            level: Some(Level::V2),
            ..Self::default()
        }
    }

    /// The same with what the level x86-64-v3 adds (AVX2, `bmi2`, `fma`, `movbe`) and what came with
    /// it: hosts from 2013 (Intel) or 2017 (AMD) on.
    #[must_use]
    pub fn x86_64_v3() -> Self {
        Self {
            level: Some(Level::V3),
            ..Self::default()
        }
    }

    /// Hides a feature by the name that Linux gives it in `/proc/cpuinfo` (`avx512f`, `rdrand`). An
    /// unknown name, or one that must not be hidden, fails the start.
    #[must_use]
    pub fn without(mut self, flag: impl Into<String>) -> Self {
        self.hidden.push(flag.into());
        self
    }

    /// Clears `bits` of a register of feature flags, for what has no name here. A register that holds
    /// something else than flags, or a bit that must not be hidden, fails the start.
    #[must_use]
    pub fn mask(mut self, leaf: u32, subleaf: u32, register: CpuidRegister, bits: u32) -> Self {
        self.masks.push(Mask {
            place: Place {
                leaf,
                subleaf,
                register,
            },
            bits,
        });
        self
    }

    /// Checks names, registers, and that nothing is hidden that a guest needs.
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        for name in &self.hidden {
            let Some(feature) = named(name) else {
                let bound = "this is no flag of /proc/cpuinfo that is known here; \
                             CpuTemplate::mask takes leaf, register and bits";
                return Err(UsageError::new(FIELD, name, bound));
            };
            check_not_needed(feature.place, 1 << feature.bit)?;
        }
        for Mask { place, bits } in &self.masks {
            if !FLAGS.contains(place) {
                let Place {
                    leaf,
                    subleaf,
                    register,
                } = place;
                return Err(UsageError::new(
                    FIELD,
                    format!("leaf {leaf:#x}, subleaf {subleaf}, {register:?}"),
                    "this is no register of feature flags",
                ));
            }
            check_not_needed(*place, *bits)?;
        }
        Ok(())
    }

    /// What is left of what KVM supports.
    pub(crate) fn apply(&self, supported: &CpuId) -> Result<CpuId, HostError> {
        let mut leaves = supported.as_slice().to_vec();
        if *self != Self::host() {
            self.hide(&mut leaves);
        }
        CpuId::from_entries(&leaves)
            .map_err(|e| HostError::new("lay out CPUID", std::io::Error::other(format!("{e:?}"))))
    }

    fn hide(&self, leaves: &mut Vec<kvm_cpuid_entry2>) {
        if let Some(level) = self.level {
            for place in FLAGS {
                if let Some(register) = place.of(leaves) {
                    *register &= features::left_by(level, place);
                }
            }
        }
        let named = self.hidden.iter().filter_map(|name| named(name));
        let named = named.map(|feature| Mask {
            place: feature.place,
            bits: 1 << feature.bit,
        });
        for Mask { place, bits } in named.chain(self.masks.iter().copied()) {
            if let Some(register) = place.of(leaves) {
                *register &= !bits;
            }
        }
        // In the table's order, where what others depend on comes first.
        for feature in FEATURES {
            let missing = feature.needs.is_some_and(|needs| !has(leaves, needs));
            if missing && let Some(register) = feature.place.of(leaves) {
                *register &= !(1 << feature.bit);
            }
        }
        xsave::fit(leaves);
    }
}

impl Place {
    /// This register's value among the leaves.
    fn of(self, leaves: &mut [kvm_cpuid_entry2]) -> Option<&mut u32> {
        let entry = leaves
            .iter_mut()
            .find(|entry| (entry.function, entry.index) == (self.leaf, self.subleaf))?;
        Some(match self.register {
            CpuidRegister::Eax => &mut entry.eax,
            CpuidRegister::Ebx => &mut entry.ebx,
            CpuidRegister::Ecx => &mut entry.ecx,
            CpuidRegister::Edx => &mut entry.edx,
        })
    }
}

fn named(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name == name)
}

/// Whether the feature of this name is among the leaves.
fn has(leaves: &mut [kvm_cpuid_entry2], name: &str) -> bool {
    named(name).is_some_and(|feature| {
        let register = feature.place.of(leaves);
        register.is_some_and(|value| *value & 1 << feature.bit != 0)
    })
}

fn check_not_needed(place: Place, bits: u32) -> Result<(), UsageError> {
    let needed = NEEDED
        .iter()
        .filter_map(|name| named(name))
        .find(|feature| feature.place == place && bits & 1 << feature.bit != 0);
    match needed {
        None => Ok(()),
        Some(feature) => Err(UsageError::new(
            FIELD,
            feature.name,
            "a guest needs this to boot; it cannot be hidden",
        )),
    }
}

#[cfg(test)]
#[path = "cpu_template_test.rs"]
mod tests;
