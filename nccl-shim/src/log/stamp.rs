//! Times in front of log lines.

use super::Level;
use std::ffi::CString;

/// How the time is written, and on which lines.
#[derive(Debug)]
pub(super) struct Stamp {
    format: String,
    /// Indexed by `Level`.
    levels: [bool; 6],
}

const DEFAULT: &str = "[%F %T] ";

impl Stamp {
    /// `_` in a format stands for a space; an empty list of levels is NCCL's default, WARN alone.
    pub(super) fn chosen(format: Option<String>, levels: Option<String>) -> Self {
        let format = format.map_or(DEFAULT.to_owned(), |format| format.replace('_', " "));
        let list = levels.unwrap_or_else(|| "WARN".into());
        let (inverts, names) = list.strip_prefix('^').map_or((false, list.as_str()), |names| (true, names));
        let mut levels = [inverts; 6];
        for name in names.split(',').map(str::trim) {
            if name.eq_ignore_ascii_case("ALL") {
                levels = [!inverts; 6];
            } else if let Some(level) = Level::named(name) {
                levels[level as usize] = !inverts;
            }
        }
        Self { format, levels }
    }

    /// The time now, if lines of this level have it.
    pub(super) fn of(&self, level: Level) -> String {
        if !self.levels[level as usize] {
            return String::new();
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.at(since.as_secs().try_into().unwrap_or(0), since.subsec_nanos())
    }

    fn at(&self, seconds: libc::time_t, nanos: u32) -> String {
        let format = with_fraction(&self.format, nanos);
        let Ok(format) = CString::new(format) else { return String::new() };
        let mut text = [0u8; 256];
        // SAFETY: `tm` is plain data and filled by the first call; the buffer has the length that is passed.
        let written = unsafe {
            let mut tm: libc::tm = std::mem::zeroed();
            if libc::localtime_r(&seconds, &mut tm).is_null() {
                return String::new();
            }
            libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &tm)
        };
        String::from_utf8_lossy(&text[..written]).into_owned()
    }
}

/// Puts the fraction of the second where the format has `%1f` to `%9f`; once, as NCCL does.
fn with_fraction(format: &str, nanos: u32) -> String {
    let bytes = format.as_bytes();
    let is_fraction = |at: &usize| {
        matches!(bytes.get(*at..*at + 3), Some([b'%', b'1'..=b'9', b'f']))
            && (*at == 0 || bytes[at - 1] != b'%')
    };
    let Some(at) = (0..bytes.len()).find(is_fraction) else { return format.to_owned() };
    let digits = usize::from(bytes[at + 1] - b'0');
    format!("{}{}{}", &format[..at], &format!("{nanos:09}")[..digits], &format[at + 3..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which lines have a time, and what the fraction looks like.
    #[test]
    fn formats_and_levels() {
        let default = Stamp::chosen(None, None);
        assert!(default.of(Level::Info).is_empty() && default.of(Level::Warn).starts_with("[20"));
        let all = Stamp::chosen(Some("%s.%3f_".into()), Some("ALL".into()));
        assert_eq!(all.at(7, 123_456_789), "7.123 ");
        let others = Stamp::chosen(None, Some("^WARN".into()));
        assert!(others.of(Level::Warn).is_empty() && !others.of(Level::Info).is_empty());
        assert_eq!(with_fraction("%%3f", 5), "%%3f");
    }
}
