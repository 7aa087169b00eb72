//! What a soak loses on purpose, to see that its test notices.

use clap::ValueEnum;

/// What is lost at every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum Leak {
    /// Some memory.
    Memory,
    /// A descriptor.
    Descriptor,
    /// A thread that never ends.
    Thread,
}

/// Bytes that one step loses.
const BYTES: usize = 256 << 10;

impl Leak {
    /// Loses one.
    pub(super) fn one(self) {
        match self {
            Self::Memory => drop(vec![1u8; BYTES].leak()),
            Self::Descriptor => std::mem::forget(std::fs::File::open("/dev/null")),
            Self::Thread => {
                // It ends with the process.
                drop(std::thread::Builder::new().stack_size(16 << 10).spawn(|| {
                    loop {
                        std::thread::park();
                    }
                }));
            }
        }
    }
}
