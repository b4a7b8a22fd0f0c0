//! The ASCII form of a host name, `xn--bcher-kva.example` for `bücher.example`: Punycode (RFC 3492) of each label.
//!
//! Only messages need it: a URL and a configuration have the ASCII form. Letters become lower case; other mappings of
//! IDNA are not implemented, so names with such characters have no ASCII form.

/// Bytes of the longest label (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;

// RFC 3492 §5.
const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const BIAS: u32 = 72;
const FIRST: u32 = 0x80;

/// The ASCII form of a host name; `None` if the text is not a host name, or the form is unknown.
pub fn ascii_form(host: &str) -> Option<String> {
    let labels = host.split('.').map(|label| {
        let label: String = label.chars().flat_map(char::to_lowercase).collect();
        let is_allowed = |character: char| character == '-' || character == '_' || character.is_alphanumeric();
        // Others have an ASCII form only after normalization: combining and full-width characters.
        let is_composed = |character: char| !('\u{300}'..='\u{36F}').contains(&character) && character < '\u{FB00}';
        if !label.chars().all(|character| is_allowed(character) && is_composed(character)) {
            return None;
        }
        let ascii = if label.is_ascii() { label } else { format!("xn--{}", punycode(&label)?) };
        (ascii.len() <= LABEL_BYTES_MAX).then_some(ascii)
    });
    labels.collect::<Option<Vec<String>>>().map(|labels| labels.join("."))
}

/// RFC 3492 §6.3; `None` for a label that is too long.
fn punycode(label: &str) -> Option<String> {
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic_count = u32::try_from(out.len()).ok()?;
    let count = u32::try_from(label.chars().count()).ok()?;
    if basic_count > 0 {
        out.push('-');
    }
    let (mut next, mut delta, mut bias, mut handled) = (FIRST, 0_u32, BIAS, basic_count);
    while handled < count {
        let least = label.chars().map(u32::from).filter(|&point| point >= next).min()?;
        delta = delta.checked_add((least - next).checked_mul(handled + 1)?)?;
        next = least;
        for point in label.chars().map(u32::from) {
            if point < next {
                delta = delta.checked_add(1)?;
            }
            if point == next {
                put_number(delta, bias, &mut out);
                bias = adapted(delta, handled + 1, handled == basic_count);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        next += 1;
    }
    Some(out)
}

/// Appends a variable-length integer.
fn put_number(mut number: u32, bias: u32, out: &mut String) {
    let mut position = BASE;
    loop {
        let threshold = position.saturating_sub(bias).clamp(T_MIN, T_MAX);
        if number < threshold {
            break out.push(digit(number));
        }
        out.push(digit(threshold + (number - threshold) % (BASE - threshold)));
        number = (number - threshold) / (BASE - threshold);
        position += BASE;
    }
}

fn digit(value: u32) -> char {
    char::from_digit((value + 10) % BASE, BASE).expect("a remainder of the base")
}

/// RFC 3492 §6.1.
fn adapted(delta: u32, count: u32, is_first: bool) -> u32 {
    let mut delta = delta / if is_first { DAMP } else { 2 };
    delta += delta / count;
    let mut bias = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        bias += BASE;
    }
    bias + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_beyond_ascii_has_an_ascii_form() {
        for (name, expected) in [
            ("example.com", Some("example.com")),
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("BÜCHER.Example", Some("xn--bcher-kva.example")),
            ("www.münchen.de", Some("www.xn--mnchen-3ya.de")),
            ("ليهمابتكلموشعربي؟", None),
            // RFC 3492 §7.1 (B), (E), (I), (J).
            ("他们为什么不说中文", Some("xn--ihqwcrb4cv8a8dqg056pqjye")),
            ("למההםפשוטלאמדבריםעברית", Some("xn--4dbcagdahymbxekheh6e0a7fei0b")),
            ("почемужеонинеговорятпорусски", Some("xn--b1abfaaepdrnnbgefbadotcwatmq2g4l")),
            ("porquénopuedensimplementehablarenespañol", Some("xn--porqunopuedensimplementehablarenespaol-fmd56a")),
            ("bu\u{308}cher.example", None),
            ("ｅｘａｍｐｌｅ.com", None),
            ("a b.example", None),
        ] {
            assert_eq!(ascii_form(name).as_deref(), expected, "{name}");
        }
        assert_eq!(ascii_form(&"ü".repeat(200)), None);
    }
}
