//! Functions of templates by name, with their parameters. Go's own functions are in `builtin`,
//! `compare`, `printf` and `escape`. Sprig's functions are in `sprig` and `json`.
use super::{builtin, compare, escape, json, printf::printf, sprig, value::Value};

pub type Answer = Result<Value, String>;

#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    pub fixed: &'static [Kind],
    /// Kind of all further arguments.
    pub rest: Option<Kind>,
    /// True if the function traverses list and map arguments, which costs steps.
    pub walks: bool,
    pub does: Behavior,
}

#[derive(Debug, Clone, Copy)]
pub enum Behavior {
    /// Function with two parameters: the evaluated arguments, and the maximum size of a string
    /// result in bytes.
    Call(fn(&[Value], usize) -> Answer),
    /// Evaluates `and` or `or`. `on` is the truth value of the operand at which the evaluation
    /// stops.
    Choose { on: bool },
}

/// Required kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Any,
    Text,
    Int,
    Bool,
    Map,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Any => "a value",
            Kind::Text => "a string",
            Kind::Int => "an integer",
            Kind::Bool => "a bool",
            Kind::Map => "a map",
        }
    }
}

impl Function {
    /// Required kind of the argument at this index.
    pub fn takes(&self, index: usize) -> Kind {
        self.fixed.get(index).copied().or(self.rest).unwrap_or(Kind::Any)
    }
}

const ANY: Kind = Kind::Any;
const TEXT: Kind = Kind::Text;
const INT: Kind = Kind::Int;
const MAP: Kind = Kind::Map;

const fn of(
    name: &'static str,
    fixed: &'static [Kind],
    rest: bool,
    walks: bool,
    body: fn(&[Value], usize) -> Answer,
) -> Function {
    let rest = if rest { Some(ANY) } else { None };
    Function { name, fixed, rest, walks, does: Behavior::Call(body) }
}

const fn choose(name: &'static str, on: bool) -> Function {
    Function { name, fixed: &[ANY], rest: Some(ANY), walks: false, does: Behavior::Choose { on } }
}

const NOT: bool = false;
const REST: bool = true;
const WALKS: bool = true;

/// All functions, sorted by name.
static FUNCTIONS: [Function; 43] = [
    choose("and", false),
    of("append", &[ANY, ANY], NOT, WALKS, sprig::append),
    of("b64enc", &[ANY], NOT, NOT, sprig::b64enc),
    of("call", &[ANY], REST, NOT, builtin::call),
    of("coalesce", &[], REST, NOT, sprig::coalesce),
    of("default", &[ANY], REST, NOT, sprig::default),
    of("dict", &[], REST, WALKS, sprig::dict),
    of("dig", &[], REST, NOT, sprig::dig),
    of("div", &[ANY, ANY], NOT, NOT, sprig::div),
    of("duration", &[ANY], NOT, NOT, sprig::duration),
    of("eq", &[ANY], REST, NOT, compare::eq),
    of("fromJson", &[TEXT], NOT, NOT, json::read),
    of("ge", &[ANY, ANY], NOT, NOT, compare::ge),
    of("gt", &[ANY, ANY], NOT, NOT, compare::gt),
    of("html", &[], REST, WALKS, escape::html),
    of("indent", &[INT, ANY], NOT, NOT, sprig::indent),
    of("index", &[ANY], REST, NOT, builtin::index),
    of("int64", &[ANY], NOT, NOT, sprig::int64),
    of("join", &[TEXT, ANY], NOT, WALKS, sprig::join),
    of("js", &[], REST, WALKS, escape::js),
    of("kindIs", &[TEXT, ANY], NOT, NOT, sprig::kind_is),
    of("le", &[ANY, ANY], NOT, NOT, compare::le),
    of("len", &[ANY], NOT, NOT, builtin::len),
    of("list", &[], REST, WALKS, sprig::list),
    of("lower", &[TEXT], NOT, NOT, sprig::lower),
    of("lt", &[ANY, ANY], NOT, NOT, compare::lt),
    of("ne", &[ANY, ANY], NOT, NOT, compare::ne),
    of("nindent", &[INT, ANY], NOT, NOT, sprig::nindent),
    of("not", &[ANY], NOT, NOT, builtin::not),
    choose("or", true),
    of("print", &[], REST, WALKS, builtin::print),
    of("printf", &[TEXT], REST, WALKS, printf),
    of("println", &[], REST, WALKS, builtin::println),
    of("quote", &[], REST, WALKS, sprig::quote),
    of("set", &[MAP, TEXT, ANY], NOT, WALKS, sprig::set),
    of("slice", &[ANY], REST, WALKS, sprig::slice),
    of("substr", &[INT, INT, TEXT], NOT, NOT, sprig::substr),
    of("ternary", &[ANY, ANY, Kind::Bool], NOT, NOT, sprig::ternary),
    of("toJson", &[ANY], NOT, WALKS, json::write),
    of("toPrettyJson", &[ANY], NOT, WALKS, json::write_pretty),
    of("trim", &[ANY], NOT, NOT, sprig::trim),
    of("urlquery", &[], REST, WALKS, escape::url_query),
    of("values", &[MAP], NOT, WALKS, sprig::values),
];

pub fn find(name: &str) -> Option<&'static Function> {
    let at = FUNCTIONS.binary_search_by(|function| function.name.cmp(name)).ok()?;
    FUNCTIONS.get(at)
}
