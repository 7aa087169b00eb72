//! How a function is exported: strong as `pncclX`, and weak as `ncclX` at the same address, so that a tool may put its
//! own `ncclX` in front and call `pncclX`.

/// Exports functions that return `ncclResult_t`: the body is guarded.
macro_rules! export {
    ($(
        $(#[$doc:meta])*
        $name:ident = $twin:ident($($arg:ident: $type:ty),* $(,)?) $body:block
    )*) => { $(
        std::arch::global_asm!(
            concat!(".weak ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(".set ", stringify!($name), ", ", stringify!($twin)),
        );
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// - Pointers are null or point to what NCCL's guide says, for as long as it says.
        #[allow(clippy::too_many_arguments, reason = "NCCL's arguments")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $twin($($arg: $type),*) -> $crate::types::ResultCode {
            $crate::failure::guard(stringify!($name), || $body)
        }
    )* };
}

/// Exports functions that return something else, which `$none` stands for when the body panics.
macro_rules! export_plain {
    ($(
        $(#[$doc:meta])*
        $name:ident = $twin:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty, $none:expr; $body:block
    )*) => { $(
        std::arch::global_asm!(
            concat!(".weak ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(".set ", stringify!($name), ", ", stringify!($twin)),
        );
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $twin($($arg: $type),*) -> $result {
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| $body)) {
                Ok(result) => result,
                Err(panic) => {
                    $crate::failure::record(&$crate::failure::panicked(stringify!($name), panic.as_ref()));
                    $none
                }
            }
        }
    )* };
}

pub(crate) use {export, export_plain};
