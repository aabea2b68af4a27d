//! The binary form of numeric: groups of four decimal digits.
//!
//! ```text
//! i16 groups · i16 weight of the first group (power of 10,000) · u16 sign · u16 scale · i16 × groups
//! ```

use aerostat_types::{ErrorKind, text::format_numeric};

use crate::sqlstate::WireError;

const NEGATIVE: u16 = 0x4000;

/// 38 digits at any scale need fewer groups; a longer number is zeros or out of range.
const GROUPS_MAX: usize = 32_768;

/// Appends `value` units of 10^-scale.
pub(super) fn put(value: i128, scale: i8, out: &mut Vec<u8>) {
    // 39 digits of i128, and up to three zeros on either side.
    let mut text = Vec::with_capacity(64);
    let places = usize::from(scale.max(0).unsigned_abs());
    let magnitude = value.unsigned_abs();
    if value == i128::MIN {
        text.extend_from_slice(magnitude.to_string().as_bytes());
    } else {
        format_numeric(magnitude as i128, 0, &mut text);
    }
    if scale < 0 {
        text.resize(text.len() + usize::from(scale.unsigned_abs()), b'0');
    }
    while text.len() <= places {
        text.insert(0, b'0');
    }
    // The decimal point is before the last `places` digits: fill up the groups on both sides of it.
    let whole = text.len() - places;
    let before = (4 - whole % 4) % 4;
    text.splice(0..0, std::iter::repeat_n(b'0', before));
    text.resize(text.len() + (4 - places % 4) % 4, b'0');
    let weight = ((whole + before) / 4) as i16 - 1;
    let groups: Vec<i16> = text
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |sum, b| sum * 10 + i16::from(b - b'0'))
        })
        .collect();
    let first = groups
        .iter()
        .position(|&group| group != 0)
        .unwrap_or(groups.len());
    let last = groups
        .iter()
        .rposition(|&group| group != 0)
        .map_or(first, |at| at + 1);
    let kept = &groups[first..last];
    let weight = if kept.is_empty() {
        0
    } else {
        weight - first as i16
    };
    let sign = if value < 0 { NEGATIVE } else { 0 };
    for field in [kept.len() as u16, weight as u16, sign, places as u16] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    kept.iter()
        .for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

/// Reads the binary form as decimal text, which [`aerostat_types::text::parse_numeric`] rounds and
/// checks.
pub(super) fn text_of(bytes: &[u8]) -> Result<String, WireError> {
    let invalid = |what: &str| {
        WireError::new(
            ErrorKind::InvalidBinaryRepresentation,
            format!("invalid {what} in external \"numeric\" value"),
        )
    };
    let (header, digits) = bytes.split_at_checked(8).ok_or_else(|| invalid("length"))?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (count, weight, sign) = (usize::from(field(0)), field(2) as i16, field(4));
    if count > GROUPS_MAX || digits.len() != count * 2 {
        return Err(invalid("length"));
    }
    if sign == 0xC000 || sign == 0xD000 || sign == 0xF000 {
        return Err(WireError::new(
            ErrorKind::FeatureNotSupported,
            "numeric NaN and infinity are not supported",
        ));
    }
    if sign != 0 && sign != NEGATIVE {
        return Err(invalid("sign"));
    }
    let mut text = String::with_capacity(count * 4 + 16);
    if sign == NEGATIVE {
        text.push('-');
    }
    text.push('0');
    for group in digits.chunks_exact(2) {
        let group = u16::from_be_bytes([group[0], group[1]]);
        if group > 9999 {
            return Err(invalid("digit"));
        }
        text.push_str(&format!("{group:04}"));
    }
    let exponent = (i32::from(weight) + 1) * 4 - count as i32 * 4;
    text.push_str(&format!("e{exponent}"));
    Ok(text)
}
