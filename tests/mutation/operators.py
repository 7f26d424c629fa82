"""Changes to Python source, each at every place where it parses.

An operator is given a node of the syntax tree and returns what may stand in its place, or nothing.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

Operator = Callable[[ast.AST], list[ast.AST]]

OPERATORS: dict[str, Operator] = {}


def operator(function: Operator) -> Operator:
    """Register an operator by its name."""
    OPERATORS[function.__name__.strip("_")] = function
    return function


def _called(node, *names):
    """Whether a node calls a function or a method of one of these names."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    return name in names


def _method(node, *names):
    return _called(node, *names) and isinstance(node.func, ast.Attribute)


def _changed(node, **fields):
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _with_name(node, name):
    func = _changed(node.func, attr=name) if isinstance(node.func, ast.Attribute) else ast.Name(name, ast.Load())
    return _changed(node, func=func)


def _swap_operator(before, after):
    def change(node):
        swap = isinstance(node, ast.BinOp) and isinstance(node.op, before)
        return [_changed(node, op=after())] if swap else []

    return change


def _swap_comparison(before, after):
    def change(node):
        swap = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], before)
        return [_changed(node, ops=[after()])] if swap else []

    return change


def _keep_side(kind, side):
    def change(node):
        return [getattr(node, side)] if isinstance(node, ast.BinOp) and isinstance(node.op, kind) else []

    return change


def _rename_call(before, after):
    def change(node):
        return [_with_name(node, after)] if _called(node, before) else []

    return change


def _first_argument(*names):
    def change(node):
        plain = _called(node, *names) and len(node.args) > 1
        return [node.args[0]] if plain else []

    return change


# -- clips and bounds --


@operator
def drop_a_clip(node):
    """x.clip(a, b) or np.clip(x, a, b) becomes x."""
    if not _method(node, "clip"):
        return []
    of_module = isinstance(node.func.value, ast.Name) and node.func.value.id == "np"
    return [node.args[0] if of_module else node.func.value]


@operator
def clip_to_twice_the_bound(node):
    """A call whose last argument is a norm gets twice of it."""
    if not (_method(node, "clipped", "scaled") and node.args):
        return []
    twice = ast.BinOp(node.args[-1], ast.Mult(), ast.Constant(2.0))
    return [_changed(node, args=[*node.args[:-1], twice])]


@operator
def double_what_was_clipped(node):
    """Values are doubled before a class takes them for bounded."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cls" and node.args):
        return []
    return [_changed(node, args=[ast.BinOp(node.args[0], ast.Mult(), ast.Constant(2.0)), *node.args[1:]])]


OPERATORS |= {
    "minimum keeps its first argument": _first_argument("minimum", "min"),
    "maximum keeps its first argument": _first_argument("maximum", "max"),
    "minimum becomes maximum": _rename_call("minimum", "maximum"),
    "maximum becomes minimum": _rename_call("maximum", "minimum"),
    "min becomes max": _rename_call("min", "max"),
    "max becomes min": _rename_call("max", "min"),
    "clipped becomes scaled": _rename_call("clipped", "scaled"),
}

# -- arithmetic --

OPERATORS |= {
    "plus becomes minus": _swap_operator(ast.Add, ast.Sub),
    "minus becomes plus": _swap_operator(ast.Sub, ast.Add),
    "times becomes over": _swap_operator(ast.Mult, ast.Div),
    "over becomes times": _swap_operator(ast.Div, ast.Mult),
    "a product keeps its left factor": _keep_side(ast.Mult, "left"),
    "a product keeps its right factor": _keep_side(ast.Mult, "right"),
    "a quotient keeps its numerator": _keep_side(ast.Div, "left"),
    "a sum keeps its first term": _keep_side(ast.Add, "left"),
    "a difference keeps its first term": _keep_side(ast.Sub, "left"),
    "a power is dropped": _keep_side(ast.Pow, "left"),
    "a square root is dropped": lambda node: [node.args[0]] if _called(node, "sqrt") and node.args else [],
    "a square is dropped": lambda node: [node.args[0]] if _called(node, "square") and node.args else [],
    "an absolute value is dropped": lambda node: [node.args[0]] if _called(node, "abs") and node.args else [],
    "hypot keeps its first argument": _first_argument("hypot"),
}


@operator
def a_sign_is_dropped(node):
    """-x becomes x."""
    return [node.operand] if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else []


def _number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


@operator
def a_number_is_doubled(node):
    """2 becomes 4, 0.5 becomes 1.0."""
    return [ast.Constant(2 * node.value)] if _number(node) and node.value else []


@operator
def a_number_is_halved(node):
    """0.5 becomes 0.25."""
    return [ast.Constant(node.value / 2)] if _number(node) and type(node.value) is float and node.value else []


@operator
def one_more(node):
    """1 becomes 2."""
    return [ast.Constant(node.value + 1)] if _number(node) and type(node.value) is int else []


@operator
def one_less(node):
    """1 becomes 0."""
    return [ast.Constant(node.value - 1)] if _number(node) and type(node.value) is int else []


# -- comparisons and conditions --

OPERATORS |= {
    "below becomes at most": _swap_comparison(ast.Lt, ast.LtE),
    "at most becomes below": _swap_comparison(ast.LtE, ast.Lt),
    "above becomes at least": _swap_comparison(ast.Gt, ast.GtE),
    "at least becomes above": _swap_comparison(ast.GtE, ast.Gt),
    "below becomes above": _swap_comparison(ast.Lt, ast.Gt),
    "above becomes below": _swap_comparison(ast.Gt, ast.Lt),
    "equal becomes unequal": _swap_comparison(ast.Eq, ast.NotEq),
    "unequal becomes equal": _swap_comparison(ast.NotEq, ast.Eq),
    "is becomes is not": _swap_comparison(ast.Is, ast.IsNot),
    "any becomes all": _rename_call("any", "all"),
    "all becomes any": _rename_call("all", "any"),
}


@operator
def not_is_dropped(node):
    """not x becomes x, and ~x becomes x."""
    dropped = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert)
    return [node.operand] if dropped else []


@operator
def and_becomes_or(node):
    """And the other way round."""
    if not isinstance(node, ast.BoolOp):
        return []
    return [_changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())]


@operator
def a_truth_is_turned_round(node):
    """True becomes False."""
    return [ast.Constant(not node.value)] if isinstance(node, ast.Constant) and type(node.value) is bool else []


@operator
def a_choice_takes_the_first(node):
    """a if c else b becomes a; np.where(c, a, b) becomes a."""
    if isinstance(node, ast.IfExp):
        return [node.body]
    return [node.args[1]] if _called(node, "where") and len(node.args) == 3 else []


@operator
def a_choice_takes_the_second(node):
    """a if c else b becomes b; np.where(c, a, b) becomes b."""
    if isinstance(node, ast.IfExp):
        return [node.orelse]
    return [node.args[2]] if _called(node, "where") and len(node.args) == 3 else []


@operator
def a_refusal_is_dropped(node):
    """if c: raise ... becomes pass."""
    refuses = isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise) and not node.orelse
    return [ast.Pass()] if refuses else []


# -- arrays --


def _axis(node, wanted, other):
    for at, keyword in enumerate(getattr(node, "keywords", [])):
        number = keyword.value
        if keyword.arg == "axis" and isinstance(number, ast.Constant) and number.value == wanted:
            keywords = list(node.keywords)
            keywords[at] = ast.keyword("axis", ast.Constant(other))
            return [_changed(node, keywords=keywords)]
    return []


OPERATORS |= {
    "axis 0 becomes 1": lambda node: _axis(node, 0, 1),
    "axis 1 becomes 0": lambda node: _axis(node, 1, 0),
    "a sum becomes a largest": _rename_call("sum", "max"),
    "a sum becomes a mean": _rename_call("sum", "mean"),
    "a largest becomes a mean": _rename_call("max", "mean"),
}


@operator
def a_slice_takes_everything(node):
    """x[1:] becomes x."""
    return [node.value] if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) else []


@operator
def arguments_change_places(node):
    """f(a, b) becomes f(b, a)."""
    if not (
        isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args)
    ):
        return []
    return [_changed(node, args=[node.args[1], node.args[0], *node.args[2:]])]


@operator
def a_named_argument_is_dropped(node):
    """f(a, b=c) becomes f(a)."""
    if not (isinstance(node, ast.Call) and node.keywords):
        return []
    return [_changed(node, keywords=[k for k in node.keywords if k is not drop]) for drop in node.keywords if drop.arg]


@operator
def a_statement_is_dropped(node):
    """A call for its effect, or x += y, becomes pass."""
    effect = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return [ast.Pass()] if effect or isinstance(node, ast.AugAssign) else []


# -- secrets, caches, and who is there --


@operator
def a_key_is_known(node):
    """noise.key() becomes 32 zeros."""
    return [ast.Call(ast.Name("bytes", ast.Load()), [ast.Constant(32)], [])] if _method(node, "key") else []


@operator
def results_are_kept(node):
    """A method keeps its first result, whatever it is given later."""
    made = isinstance(node, ast.FunctionDef) and node.args.args and node.args.args[0].arg == "self"
    if not made or node.decorator_list or not any(isinstance(part, ast.Return) for part in node.body):
        return []
    name = f"_kept_{node.name}"
    last = next(at for at, part in enumerate(node.body) if isinstance(part, ast.Return))
    keep = ast.parse(f"type(self).{name} = (None,)").body[0]
    keep.value = ast.Tuple([node.body[last].value or ast.Constant(None)], ast.Load())
    kept = ast.parse(f"type(self).{name}[0]", mode="eval").body
    check = ast.parse(f"if {name!r} in vars(type(self)):\n    return type(self).{name}[0]").body[0]
    return [_changed(node, body=[check, *node.body[:last], keep, ast.Return(kept), *node.body[last + 1 :]])]


@operator
def the_number_of_users_is_read(node):
    """What a function of users returns is multiplied by something that depends on their number."""
    if not isinstance(node, ast.FunctionDef):
        return []
    named = [arg.arg for arg in node.args.args if arg.arg in ("users", "data", "run")]
    at = [k for k, part in enumerate(node.body) if isinstance(part, ast.Return) and isinstance(part.value, ast.BinOp)]
    if not (named and at):
        return []
    factor = ast.parse(f"(1 + 0.01 * {named[0]}.n_users)", mode="eval").body
    body = list(node.body)
    body[at[0]] = ast.Return(ast.BinOp(body[at[0]].value, ast.Mult(), factor))
    return [_changed(node, body=body)]
