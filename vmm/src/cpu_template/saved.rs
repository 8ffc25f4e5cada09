//! A template as a snapshot keeps it.

use minicbor::{Decode, Encode};

use super::{CpuTemplate, CpuidRegister, Level, Mask, Place};
use crate::snapshot::RestoreError;

/// What was asked for, by name where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedTemplateV1 {
    /// 2 or 3, of x86-64-v2 and x86-64-v3.
    #[n(0)]
    level: Option<u8>,
    #[n(1)]
    hidden: Vec<String>,
    /// Leaf, subleaf, register (0 to 3, from `eax` to `edx`), bits.
    #[n(2)]
    masks: Vec<(u32, u32, u8, u32)>,
}

const REGISTERS: [CpuidRegister; 4] = [
    CpuidRegister::Eax,
    CpuidRegister::Ebx,
    CpuidRegister::Ecx,
    CpuidRegister::Edx,
];

impl CpuTemplate {
    pub(crate) fn save(&self) -> SavedTemplateV1 {
        SavedTemplateV1 {
            level: self.level.map(|level| match level {
                Level::V2 => 2,
                Level::V3 => 3,
            }),
            hidden: self.hidden.clone(),
            masks: self
                .masks
                .iter()
                .map(|Mask { place, bits }| {
                    (place.leaf, place.subleaf, place.register as u8, *bits)
                })
                .collect(),
        }
    }
}

impl SavedTemplateV1 {
    /// The way back. What it hides is checked when a VM is started.
    pub(crate) fn restore(&self) -> Result<CpuTemplate, RestoreError> {
        let unknown =
            |what: &str| RestoreError::malformed("vm", format!("{what} of the CPU template"));
        let level = match self.level {
            None => None,
            Some(2) => Some(Level::V2),
            Some(3) => Some(Level::V3),
            Some(_) => return Err(unknown("an unknown level")),
        };
        let mut masks = Vec::with_capacity(self.masks.len());
        for (leaf, subleaf, register, bits) in &self.masks {
            let register = REGISTERS
                .get(usize::from(*register))
                .ok_or_else(|| unknown("an unknown register"))?;
            masks.push(Mask {
                place: Place {
                    leaf: *leaf,
                    subleaf: *subleaf,
                    register: *register,
                },
                bits: *bits,
            });
        }
        Ok(CpuTemplate {
            level,
            hidden: self.hidden.clone(),
            masks,
        })
    }
}
