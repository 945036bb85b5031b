"""Texts of Avro schemas, beside those that Avro 1.12.1 for Java printed."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import InvalidSchema
from trilogue.broker.schemas.avro_text import print_avro
from trilogue.broker.schemas.compatibility import DEPTH_MAX

PRINTED = {
    (
        '{"namespace":"com.shop","name":"User","type":"record","doc":"d","fields":[{"type":"s'
        'tring","name":"a","doc":"x"},{"default":null,"name":"b","type":["null",{"type":"int"'
        '}]}]}'
    ): (
        '{"type":"record","name":"User","namespace":"com.shop","doc":"d","fields":[{"name":"a'
        '","type":"string","doc":"x"},{"name":"b","type":["null","int"],"default":null}]}'
    ),
    (
        '{"type":"int","name":"x"}'
    ): (
        '"int"'
    ),
    (
        '{"type":"int","logicalType":"date"}'
    ): (
        '{"type":"int","logicalType":"date"}'
    ),
    (
        '{"logicalType":"decimal","precision":4,"scale":2,"type":"bytes"}'
    ): (
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}'
    ),
    (
        '{"items":{"type":"string","avro.java.string":"String"},"type":"array","doc":"gone"}'
    ): (
        '{"type":"array","items":{"type":"string","avro.java.string":"String"}}'
    ),
    (
        '{"type":"record","name":"com.shop.A","fields":[{"name":"e","type":{"type":"enum","na'
        'me":"E","symbols":["X","Y"],"default":"X","namespace":"com.shop"}},{"name":"e2","typ'
        'e":"com.shop.E"},{"name":"f","type":{"type":"fixed","size":4,"name":"other.F","alias'
        'es":["G","third.H"]}},{"name":"self","type":["null","A"],"order":"DESCENDING","alias'
        'es":["me"],"custom":{"b":1,"a":2}}],"aliases":["B","com.shop.C"],"extra":true}'
    ): (
        '{"type":"record","name":"A","namespace":"com.shop","fields":[{"name":"e","type":{"ty'
        'pe":"enum","name":"E","symbols":["X","Y"],"default":"X"}},{"name":"e2","type":"E"},{'
        '"name":"f","type":{"type":"fixed","name":"F","namespace":"other","size":4,"aliases":'
        '["G","third.H"]}},{"name":"self","type":["null","A"],"order":"descending","aliases":'
        '["me"],"custom":{"b":1,"a":2}}],"extra":true,"aliases":["B","C"]}'
    ),
    (
        '{"type":"record","name":"A","fields":[{"name":"n","type":{"type":"record","name":"N"'
        ',"namespace":"x","fields":[{"name":"m","type":{"type":"map","values":{"type":"record'
        '","name":"O","namespace":"","fields":[]}}},{"name":"a","type":"O"}]},"order":"ascend'
        'ing"},{"name":"z","type":{"type":"A"}}]}'
    ): (
        '{"type":"record","name":"A","fields":[{"name":"n","type":{"type":"record","name":"N"'
        ',"namespace":"x","fields":[{"name":"m","type":{"type":"map","values":{"type":"record'
        '","name":"O","namespace":"","fields":[]}}},{"name":"a","type":"O"}]}},{"name":"z","t'
        'ype":"A"}]}'
    ),
    (
        '["null",{"type":"string"},{"type":"map","values":"long"}]'
    ): (
        '["null","string",{"type":"map","values":"long"}]'
    ),
    (
        '{"type":"record","name":"T","namespace":"n","fields":[{"name":"string","type":{"type'
        '":"record","name":"string_","fields":[]}},{"name":"d","type":"double","default":1.5}'
        ',{"name":"l","type":"long","default":12345678901}]}'
    ): (
        '{"type":"record","name":"T","namespace":"n","fields":[{"name":"string","type":{"type'
        '":"record","name":"string_","fields":[]}},{"name":"d","type":"double","default":1.5}'
        ',{"name":"l","type":"long","default":12345678901}]}'
    ),
    (
        '"string"'
    ): (
        '"string"'
    ),
    (
        '{"type":"error","name":"Oops","fields":[{"name":"u","type":{"type":"string"},"doc":n'
        'ull}],"doc":"é\\"\\n"}'
    ): (
        '{"type":"error","name":"Oops","doc":"é\\"\\n","fields":[{"name":"u","type":"string"}]}'
    ),
    (
        '{"type":"record","name":"X","namespace":"n","fields":[{"name":"a","type":{"type":"in'
        't","default":3,"order":"x"}}]}'
    ): (
        '{"type":"record","name":"X","namespace":"n","fields":[{"name":"a","type":{"type":"in'
        't","default":3,"order":"x"}}]}'
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "printed"), PRINTED.items())
def test_a_text_is_as_java_prints_it(text: str, printed: str):
    assert print_avro(text) == printed
    assert print_avro(printed) == printed


def test_names_of_references_are_short_where_their_namespace_is():
    text = (
        '{"type":"record","name":"Person","namespace":"com","fields":[{"name":"a","type":'
        '"com.Address"},{"name":"b","type":"Address"},{"name":"k","type":"other.K"}]}'
    )
    printed = print_avro(text, ["com.Address", "other.K"])
    assert printed == text.replace('"com.Address"', '"Address"')


def test_a_text_that_is_no_schema_stays_unchanged():
    for text in ("{}", "3", "[[]]", '{"type":{"x":1}}', '{"type":"record","name":3}', '"no.Such"'):
        assert print_avro(text)
    assert print_avro('{"items":"int"}') == '{"items":"int"}'


def test_types_within_types_have_a_bound():
    with pytest.raises(InvalidSchema):
        print_avro('{"type":"array","items":' * (DEPTH_MAX + 2) + '"int"' + "}" * (DEPTH_MAX + 2))
