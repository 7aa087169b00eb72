//! Parameters by their names.

use crate::config::string;
use crate::export::{export, export_plain};
use crate::failure::{Failure, Outcome};
use crate::params::{PARAMS, Param};
use crate::types::ParamHandle;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

thread_local! {
    /// Texts that were given out; each lives until the same call of this thread gives out the next one.
    static TEXT: RefCell<CString> = RefCell::default();
    static VALUE: RefCell<CString> = RefCell::default();
    /// The names, as C has them, with the table of their addresses.
    static KEYS: RefCell<(Vec<CString>, Vec<*const c_char>)> = RefCell::default();
}

/// What a handle stands for: its place in the table, from 1 on.
fn param(handle: ParamHandle, call: &str) -> Result<&'static Param, Failure> {
    let place = handle.addr().checked_sub(1).and_then(|place| PARAMS.get(place));
    place.ok_or_else(|| {
        Failure::argument(format!("{call} : {handle:p} is no parameter; ncclParamBind gives one"))
    })
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// # Safety
/// - `key` is null or a string of C.
unsafe fn named(key: *const c_char, call: &str) -> Result<&'static Param, Failure> {
    // SAFETY: the caller's contract.
    let name = unsafe { string(key) };
    let name = name.ok_or_else(|| Failure::argument(format!("{call} : key argument is NULL")))?;
    Param::named(&name).ok_or_else(|| Failure::argument(format!("{call} : there is no parameter `{name}`")))
}

/// # Safety
/// - `out` is null or writable.
unsafe fn get<T: TryFrom<i64>>(handle: ParamHandle, out: *mut T, call: &str) -> Outcome {
    let param = param(handle, call)?;
    if out.is_null() {
        return Err(Failure::argument(format!("{call} : out argument is NULL")));
    }
    let number = param.number().filter(|_| size_of::<T>() == size_of::<i64>());
    let value = number.and_then(|number| T::try_from(number).ok());
    let value =
        value.ok_or_else(|| Failure::argument(format!("{call} : {} has another type", param.name)))?;
    // SAFETY: not null; the caller's contract.
    unsafe { out.write(value) };
    Ok(())
}

macro_rules! getters {
    ($($name:ident = $twin:ident: $type:ty;)*) => { export! { $(
        #[doc = concat!("A parameter that is stored as `", stringify!($type), "`.")]
        $name = $twin(handle: ParamHandle, out: *mut $type) {
            // SAFETY: the caller's contract.
            unsafe { get(handle, out, stringify!($name)) }
        }
    )* } };
}

getters! {
    ncclParamGetI8 = pncclParamGetI8: i8;
    ncclParamGetI16 = pncclParamGetI16: i16;
    ncclParamGetI32 = pncclParamGetI32: i32;
    ncclParamGetI64 = pncclParamGetI64: i64;
    ncclParamGetU8 = pncclParamGetU8: u8;
    ncclParamGetU16 = pncclParamGetU16: u16;
    ncclParamGetU32 = pncclParamGetU32: u32;
}

export! {
    /// A handle for a parameter.
    ncclParamBind = pncclParamBind(out: *mut ParamHandle, key: *const c_char) {
        const CALL: &str = "ncclParamBind";
        if out.is_null() {
            return Err(Failure::argument(format!("{CALL} : out argument is NULL")));
        }
        // SAFETY: the caller's contract.
        let param = unsafe { named(key, CALL)? };
        let place = PARAMS.iter().position(|other| other == param).unwrap_or(0);
        // SAFETY: not null; the caller's contract.
        unsafe { out.write(std::ptr::without_provenance_mut(place + 1)) };
        Ok(())
    }

    /// No parameter is stored as `u64`.
    ncclParamGetU64 = pncclParamGetU64(handle: ParamHandle, out: *mut u64) {
        const CALL: &str = "ncclParamGetU64";
        let name = param(handle, CALL)?.name;
        Err(Failure::argument(format!("{CALL} : {name} has another type; its place is at {out:p}")))
    }

    /// A parameter that is a text; valid until the thread's next call of this.
    ncclParamGetStr = pncclParamGetStr(handle: ParamHandle, out: *mut *const c_char) {
        const CALL: &str = "ncclParamGetStr";
        let param = param(handle, CALL)?;
        if out.is_null() || param.is_number {
            return Err(Failure::argument(format!("{CALL} : {} is no text, or out is NULL", param.name)));
        }
        let text = TEXT.with(|text| {
            text.replace(c_text(&param.text()));
            text.borrow().as_ptr()
        });
        // SAFETY: not null; the caller's contract.
        unsafe { out.write(text) };
        Ok(())
    }

    /// The bytes of a parameter.
    ncclParamGet = pncclParamGet(handle: ParamHandle, out: *mut c_void, max_len: c_int, len: *mut c_int) {
        const CALL: &str = "ncclParamGet";
        let param = param(handle, CALL)?;
        let bytes = match param.number() {
            Some(number) => number.to_ne_bytes().to_vec(),
            None => c_text(&param.text()).into_bytes_with_nul(),
        };
        let room = usize::try_from(max_len).unwrap_or(0);
        if out.is_null() || len.is_null() || room < bytes.len() {
            let (name, size) = (param.name, bytes.len());
            return Err(Failure::argument(format!("{CALL} : {name} has {size} bytes, there is room for {room}")));
        }
        // SAFETY: neither is null, and `out` has room; the caller's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len());
            len.write(bytes.len() as c_int);
        }
        Ok(())
    }

    /// A parameter as text; valid until the thread's next call of this.
    ncclParamGetParameter = pncclParamGetParameter(key: *const c_char, value: *mut *const c_char, len: *mut c_int) {
        const CALL: &str = "ncclParamGetParameter";
        if value.is_null() || len.is_null() {
            return Err(Failure::argument(format!("{CALL} : value or valueLen is NULL")));
        }
        // SAFETY: not null; the caller's contract.
        unsafe {
            value.write(std::ptr::null());
            len.write(0);
            let text = c_text(&named(key, CALL)?.text());
            len.write(text.count_bytes() as c_int);
            value.write(VALUE.with(|value| {
                value.replace(text);
                value.borrow().as_ptr()
            }));
        }
        Ok(())
    }

    /// The names; valid until the thread's next call of this.
    ncclParamGetAllParameterKeys = pncclParamGetAllParameterKeys(table: *mut *mut *const c_char, len: *mut c_int) {
        if table.is_null() || len.is_null() {
            return Err(Failure::argument("ncclParamGetAllParameterKeys : table or tableLen is NULL"));
        }
        let first = KEYS.with(|keys| {
            let mut keys = keys.borrow_mut();
            if keys.0.is_empty() {
                keys.0 = PARAMS.iter().map(|param| c_text(param.name)).collect();
                keys.1 = keys.0.iter().map(|key| key.as_ptr()).collect();
            }
            keys.1.as_mut_ptr()
        });
        // SAFETY: not null; the caller's contract.
        unsafe {
            table.write(first);
            len.write(PARAMS.len() as c_int);
        }
        Ok(())
    }
}

export_plain! {
    /// Prints all parameters to standard output.
    ncclParamDumpAll = pncclParamDumpAll() -> (), (); {
        for param in &PARAMS {
            println!("{}={}", param.name, param.text());
        }
    }
}
