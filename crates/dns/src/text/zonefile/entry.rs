//! Reads one entry of a zone file: a record or a directive (RFC 1035 §5.1).

use super::field_text::{self, RdataReader};
use super::generate::Generate;
use super::name_text::{self, NameForm};
use super::number;
use super::record_type::RecordType;
use super::scanner::{EntryStart, Excerpt, Scanner, Token, TokenKind};
use super::{Diagnostic, ParserLimits, Position};
use crate::text::name::{Name, NameBuf};
use crate::text::rtype::Rtype;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The highest TTL, in seconds (RFC 2181 §8).
const TTL_S_MAX: u32 = (1 << 31) - 1;

/// An entry that was read.
#[derive(Debug)]
pub(super) enum EntryKind {
    /// A directive without further effect, or a record that is omitted.
    Ignored,
    /// A record. The context has its owner and RDATA.
    Record { position: Position, rtype: Rtype, ttl_s: u32 },
    /// An `ALIAS`. The context has its owner and, as RDATA, its target.
    Alias { position: Position },
    /// `$INCLUDE`.
    Include { position: Position, path: String, origin: Box<NameBuf> },
    /// `$GENERATE`.
    Generate(Box<Generate>),
}

/// The previous record's owner, which an entry without an owner has too.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// This file has no record yet.
    None,
    /// A name at or below the apex, in wire form.
    InZone(Vec<u8>),
    /// A name outside the zone: its records are omitted.
    OutOfZone,
    /// An invalid name: its records are only checked for errors.
    Invalid,
}

/// The state that entries share.
#[derive(Debug)]
pub(super) struct Context {
    apex: NameBuf,
    origin: NameBuf,
    /// Whether the origin, and so every relative name, is at or below the apex.
    is_origin_in_zone: bool,
    owner: Owner,
    /// `$TTL` (RFC 2308 §4), or MINIMUM of an SOA without a TTL.
    default_ttl_s: Option<u32>,
    /// The TTL of the last record that has one (RFC 1035 §5.1).
    last_ttl_s: Option<u32>,
    /// About the current record.
    warning: Option<Diagnostic>,
    rdata: Vec<u8>,
    /// A buffer for text without escapes.
    scratch: Vec<u8>,
}

impl Context {
    pub(super) fn new(apex: Name<'_>) -> Context {
        Context {
            apex: apex.to_owned(),
            origin: apex.to_owned(),
            is_origin_in_zone: true,
            owner: Owner::None,
            default_ttl_s: None,
            last_ttl_s: None,
            warning: None,
            rdata: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Starts an included file. The result restores the state after it.
    pub(super) fn enter(&mut self, origin: NameBuf) -> (NameBuf, Owner) {
        let outer_origin = self.origin;
        self.set_origin(origin);
        let outer_owner = core::mem::replace(&mut self.owner, Owner::None);
        (outer_origin, outer_owner)
    }

    /// Returns to the including file.
    pub(super) fn leave(&mut self, outer: (NameBuf, Owner)) {
        let (origin, owner) = outer;
        self.set_origin(origin);
        self.owner = owner;
    }

    fn set_origin(&mut self, origin: NameBuf) {
        self.is_origin_in_zone = origin.as_name().is_at_or_below(self.apex.as_name());
        self.origin = origin;
    }

    /// The warning about the current record.
    pub(super) fn take_warning(&mut self) -> Option<Diagnostic> {
        self.warning.take()
    }

    /// Owner and RDATA of the current record.
    pub(super) fn owner_and_rdata(&self) -> (Name<'_>, &[u8]) {
        let Owner::InZone(owner) = &self.owner else {
            unreachable!("a record is returned only when its owner is in the zone")
        };
        (Name::parse(owner).expect("put_name writes a name"), &self.rdata)
    }

    /// Sets the owner to the name in `token`, with a warning for a name outside the zone.
    fn set_owner(&mut self, scanner: &Scanner, token: Token) -> Result<(), Diagnostic> {
        let mut bytes = match core::mem::replace(&mut self.owner, Owner::Invalid) {
            Owner::InZone(bytes) => bytes,
            Owner::None | Owner::OutOfZone | Owner::Invalid => Vec::new(),
        };
        bytes.clear();
        let form = name_text::put_name(scanner.text_of(token), token.kind, self.origin.as_name(), &mut bytes)
            .map_err(|error| error.about("owner", scanner, token))?;
        let owner = Name::parse(&bytes).expect("put_name writes a name");
        if !scanner.text_of(token).is_ascii() {
            let problem = format!("the owner name {owner} has non-ASCII bytes, which resolvers do not query");
            let remedy = "write its ASCII form, which starts with xn--";
            self.warning = Some(Diagnostic::warning(scanner.position_of(token), problem, remedy));
        }
        let below_origin = form == NameForm::Relative && self.is_origin_in_zone;
        if below_origin || owner.is_at_or_below(self.apex.as_name()) {
            self.owner = Owner::InZone(bytes);
            return Ok(());
        }
        let problem = format!("{owner} is not in the zone {}; its records are ignored", self.apex);
        self.owner = Owner::OutOfZone;
        Err(Diagnostic::warning(
            scanner.position_of(token),
            problem,
            "remove them, or correct the name or the $ORIGIN before it",
        ))
    }

    /// A record's TTL: its own, the default, the last one, or MINIMUM of an SOA. BIND uses the same order.
    fn ttl_s(&mut self, explicit_ttl_s: Option<u32>, rtype: Rtype, position: Position) -> Result<u32, Diagnostic> {
        if let Some(ttl_s) = explicit_ttl_s {
            self.last_ttl_s = Some(ttl_s);
            return Ok(ttl_s);
        }
        if let Some(ttl_s) = self.default_ttl_s.or(self.last_ttl_s) {
            return Ok(ttl_s);
        }
        match self.rdata.last_chunk() {
            Some(minimum) if rtype == Rtype::SOA => {
                let ttl_s = u32::from_be_bytes(*minimum).min(TTL_S_MAX);
                self.default_ttl_s = Some(ttl_s);
                // A warning about the record itself, such as a TTL over the limit, takes precedence.
                self.warning.get_or_insert_with(|| {
                    let problem = format!(
                        "the record has no TTL, and there is no $TTL before it: it and later records get the minimum \
                            of the SOA record, {ttl_s} (RFC 2308 section 4)"
                    );
                    Diagnostic::warning(position, problem, "put $TTL 3600 at the start of the file")
                });
                Ok(ttl_s)
            }
            _ => Err(Diagnostic::error(
                position,
                "the record has no TTL, and there is no default",
                "put $TTL 3600 at the start of the file",
            )),
        }
    }
}

/// Reads the next entry. After an error, the scanner is at an unspecified place in the entry.
pub(super) fn read(
    scanner: &mut Scanner,
    start: EntryStart,
    context: &mut Context,
    limits: &ParserLimits,
) -> Result<EntryKind, Diagnostic> {
    // An entry with an error may have left a warning.
    context.warning = None;
    if start == EntryStart::Token {
        let Some(token) = scanner.token()? else {
            return Ok(EntryKind::Ignored);
        };
        let is_directive = token.kind == TokenKind::Word && scanner.text_of(token).starts_with(b"$");
        if is_directive && !scanner.is_generated() {
            return directive(token, scanner, context, limits);
        }
        context.set_owner(scanner, token)?;
    }
    match context.owner {
        Owner::InZone(_) | Owner::Invalid => record(scanner, context),
        Owner::OutOfZone => {
            scanner.skip_entry();
            Ok(EntryKind::Ignored)
        }
        Owner::None => match scanner.token()? {
            None => Ok(EntryKind::Ignored),
            Some(token) => Err(Diagnostic::error(
                scanner.position_of(token),
                "the record has no owner, and there is no record before it",
                "start the line with an owner; @ is the origin",
            )),
        },
    }
}

/// Reads TTL, class, type and RDATA.
fn record(scanner: &mut Scanner, context: &mut Context) -> Result<EntryKind, Diagnostic> {
    let RecordHead { explicit_ttl_s, position, rtype } = head(scanner, context)?;
    let RecordType::Data(rtype) = rtype else { return alias(scanner, context, position) };
    if !rtype.is_data() {
        let problem = format!("{rtype} is not a type that a zone can hold");
        return Err(Diagnostic::error(position, problem, "remove the record"));
    }
    context.rdata.clear();
    let origin = context.origin.as_name();
    let mut reader = RdataReader::new(scanner, origin, rtype, &mut context.rdata, &mut context.scratch);
    reader.read()?;
    if let Some(token) = reader.split_string.take() {
        let problem = "the string has more than 255 bytes and is split into several strings (RFC 1035 section 3.3)";
        let remedy = "write several strings of at most 255 bytes, each in quotes";
        context.warning.get_or_insert_with(|| Diagnostic::warning(scanner.position_of(token), problem, remedy));
    }
    let ttl_s = context.ttl_s(explicit_ttl_s, rtype, position)?;
    match context.owner {
        Owner::InZone(_) => Ok(EntryKind::Record { position, rtype, ttl_s }),
        Owner::None | Owner::OutOfZone | Owner::Invalid => Ok(EntryKind::Ignored),
    }
}

/// Reads the target of an `ALIAS`. A TTL in front of it has no effect, since the addresses have the target's TTL.
fn alias(scanner: &mut Scanner, context: &mut Context, position: Position) -> Result<EntryKind, Diagnostic> {
    const REMEDY: &str = "write the name of a host in another zone; an absolute name ends with a dot";
    let Some(token) = scanner.token()? else {
        return Err(Diagnostic::error(scanner.position(), "ALIAS has no target", REMEDY));
    };
    context.rdata.clear();
    name_text::put_name(scanner.text_of(token), token.kind, context.origin.as_name(), &mut context.rdata)
        .map_err(|error| error.about("target", scanner, token))?;
    let target = Name::parse(&context.rdata).expect("put_name writes a name");
    if target.is_root() {
        return Err(Diagnostic::error(scanner.position_of(token), "the ALIAS target is the root", REMEDY));
    }
    if target.is_at_or_below(context.apex.as_name()) {
        let problem = format!("the ALIAS target {target} is in the zone itself");
        let remedy =
            "write the addresses as A and AAAA records, or the name of a host in another zone, with a final dot";
        return Err(Diagnostic::error(scanner.position_of(token), problem, remedy));
    }
    field_text::expect_end(scanner)?;
    match context.owner {
        Owner::InZone(_) => Ok(EntryKind::Alias { position }),
        Owner::None | Owner::OutOfZone | Owner::Invalid => Ok(EntryKind::Ignored),
    }
}

/// The fields between owner and RDATA.
struct RecordHead {
    explicit_ttl_s: Option<u32>,
    position: Position,
    rtype: RecordType,
}

/// Reads TTL and class, in any order, and the type (RFC 1035 §5.1).
fn head(scanner: &mut Scanner, context: &mut Context) -> Result<RecordHead, Diagnostic> {
    let mut explicit_ttl_s = None;
    let mut class_given = false;
    loop {
        let Some(token) = scanner.token()? else {
            let remedy = "write owner, TTL, class, type and data on one line, or use parentheses";
            return Err(Diagnostic::error(scanner.position(), "the record has no type", remedy));
        };
        let text = scanner.text_of(token);
        if explicit_ttl_s.is_none() && text.first().is_some_and(u8::is_ascii_digit) {
            explicit_ttl_s = Some(ttl(scanner, token, context)?);
        } else if let Some(rtype) = RecordType::from_text(text) {
            return Ok(RecordHead { explicit_ttl_s, position: scanner.position_of(token), rtype });
        } else if !class_given && is_class(text) {
            class_given = true;
            if !text.eq_ignore_ascii_case(b"IN") && !text.eq_ignore_ascii_case(b"CLASS1") {
                let problem = format!("the class {} is not supported", Excerpt(text));
                return Err(Diagnostic::error(scanner.position_of(token), problem, "write IN or no class"));
            }
        } else {
            return Err(unknown_type(scanner, token));
        }
    }
}

/// An error about `token`, which is where the type should be.
#[cold]
fn unknown_type(scanner: &Scanner, token: Token) -> Diagnostic {
    let text = scanner.text_of(token);
    if text.eq_ignore_ascii_case(b"ANAME") {
        return Diagnostic::about(scanner, token, "records are not supported", "write ALIAS instead");
    }
    let remedy = "write a type such as A or MX, or TYPE65280 for a type without a name";
    Diagnostic::about(scanner, token, "is not a record type", remedy)
}

/// Whether `text` is a class, by mnemonic or as `CLASS1` (RFC 3597 §5).
fn is_class(text: &[u8]) -> bool {
    let known: [&[u8]; 5] = [b"IN", b"CH", b"CHAOS", b"HS", b"HESIOD"];
    let is_numbered = || {
        text.split_at_checked(5).is_some_and(|(head, digits)| {
            head.eq_ignore_ascii_case(b"CLASS") && number::parse_decimal(digits, u64::from(u16::MAX)).is_some()
        })
    };
    known.iter().any(|class| class.eq_ignore_ascii_case(text)) || is_numbered()
}

/// A TTL. A TTL over the limit becomes 0 (RFC 2181 §8), with a warning.
fn ttl(scanner: &Scanner, token: Token, context: &mut Context) -> Result<u32, Diagnostic> {
    let text = scanner.text_of(token);
    let Some(ttl_s) = number::parse_duration_s(text) else {
        return Err(Diagnostic::about(scanner, token, "is not a TTL", field_text::DURATION_REMEDY));
    };
    if ttl_s <= TTL_S_MAX {
        return Ok(ttl_s);
    }
    let problem =
        format!("the TTL {} is over {TTL_S_MAX} seconds and is treated as 0 (RFC 2181 section 8)", Excerpt(text));
    context.warning = Some(Diagnostic::warning(scanner.position_of(token), problem, "write a lower TTL, such as 1d"));
    Ok(0)
}

fn directive(
    token: Token,
    scanner: &mut Scanner,
    context: &mut Context,
    limits: &ParserLimits,
) -> Result<EntryKind, Diagnostic> {
    let is = |name: &str| scanner.text_of(token).eq_ignore_ascii_case(name.as_bytes());
    let entry = if is("$ORIGIN") {
        let origin = required(scanner, "$ORIGIN", "a name")?;
        let origin = name(scanner, origin, context)?;
        context.set_origin(origin);
        EntryKind::Ignored
    } else if is("$TTL") {
        let duration = required(scanner, "$TTL", "a TTL such as 3600 or 1h")?;
        context.default_ttl_s = Some(ttl(scanner, duration, context)?);
        if let Some(warning) = context.take_warning() {
            scanner.skip_entry();
            return Err(warning);
        }
        EntryKind::Ignored
    } else if is("$INCLUDE") {
        let file = required(scanner, "$INCLUDE", "a file name")?;
        let path = String::from_utf8_lossy(&field_text::unescaped(scanner, file)?).into_owned();
        let origin = match scanner.token()? {
            Some(origin) => name(scanner, origin, context)?,
            None => context.origin,
        };
        EntryKind::Include { position: scanner.position_of(file), path, origin: Box::new(origin) }
    } else if is("$GENERATE") {
        return Generate::parse(scanner.position_of(token), scanner, limits)
            .map(|generate| EntryKind::Generate(Box::new(generate)));
    } else if is("$DATE") {
        // BIND writes this directive into dumps of its cache. The directive has no meaning for a zone.
        scanner.skip_entry();
        EntryKind::Ignored
    } else {
        let remedy = "write $ORIGIN, $TTL, $INCLUDE or $GENERATE; for an owner that starts with $, write \\$";
        return Err(Diagnostic::about(scanner, token, "is not a directive", remedy));
    };
    field_text::expect_end(scanner)?;
    Ok(entry)
}

fn required(scanner: &mut Scanner, directive: &str, what: &str) -> Result<Token, Diagnostic> {
    scanner.token()?.ok_or_else(|| {
        Diagnostic::error(scanner.position(), format!("{directive} has no argument"), format!("write {what}"))
    })
}

/// The name in `token`, the argument of a directive.
fn name(scanner: &Scanner, token: Token, context: &mut Context) -> Result<NameBuf, Diagnostic> {
    context.scratch.clear();
    name_text::put_name(scanner.text_of(token), token.kind, context.origin.as_name(), &mut context.scratch)
        .map_err(|error| error.about("origin", scanner, token))?;
    Ok(Name::parse(&context.scratch).expect("put_name writes a name").to_owned())
}
