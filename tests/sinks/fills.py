"""What ADD COLUMN puts into rows that are there."""

from __future__ import annotations

from duckdb_target import column

from headrace.model.types import TypeKind

FILLS = [
    ("BIT(8) DEFAULT b'10000001'", column("x", TypeKind.BIT, length=8, default="\ufffd"), "129"),
    ("BIT(16) DEFAULT b'1100001110101001'", column("x", TypeKind.BIT, length=16, default="é"), "50089"),
    ("BIT(8) DEFAULT 5", column("x", TypeKind.BIT, length=8, default="\x05"), "5"),
    ("BIT(8) DEFAULT x'81'", column("x", TypeKind.BIT, length=8, default="\ufffd"), "129"),
    ("BIT(8) NOT NULL", column("x", TypeKind.BIT, length=8, nullable=False), "0"),
    ("BINARY(4) DEFAULT 'ab'", column("x", TypeKind.BINARY, length=4, default="ab\0\0"), "ab\\x00\\x00"),
    ("BINARY(4) NOT NULL", column("x", TypeKind.BINARY, length=4, nullable=False), "\\x00\\x00\\x00\\x00"),
    ("VARBINARY(4) NOT NULL", column("x", TypeKind.VARBINARY, length=4, nullable=False), ""),
    ("CHAR(4) DEFAULT 'ab '", column("x", TypeKind.CHAR, length=4, default="ab "), "ab"),
    ("VARCHAR(4) DEFAULT 'ab '", column("x", TypeKind.VARCHAR, length=4, default="ab "), "ab "),
    ("YEAR DEFAULT '0'", column("x", TypeKind.YEAR, default="0"), "2000"),
    ("YEAR DEFAULT 0", column("x", TypeKind.YEAR, default="0"), "2000"),
    ("YEAR DEFAULT 24", column("x", TypeKind.YEAR, default="24"), "2024"),
    ("YEAR NOT NULL", column("x", TypeKind.YEAR, nullable=False), "0"),
    ("TIME DEFAULT '-00:00:01.6'", column("x", TypeKind.TIME, default="-00:00:02"), "-00:00:02"),
    ("TIME(3) NOT NULL", column("x", TypeKind.TIME, scale=3, nullable=False), "00:00:00"),
    ("DATE DEFAULT '2024-01-02'", column("x", TypeKind.DATE, default="2024-01-02"), "2024-01-02"),
    (
        "DATETIME DEFAULT '2024-01-02 10:00:01'",
        column("x", TypeKind.DATETIME, default="2024-01-02 10:00:01"),
        "2024-01-02 10:00:01",
    ),
    ("ENUM('a','b''c') DEFAULT 'b''c'", column("x", TypeKind.ENUM, elements=("a", "b'c"), default="b'c"), "b'c"),
    ("ENUM('a','b') DEFAULT 2", column("x", TypeKind.ENUM, elements=("a", "b"), default="b"), "b"),
    ("SET('a','b') DEFAULT 3", column("x", TypeKind.SET, elements=("a", "b"), default="a,b"), "a,b"),
    ("SET('a','b') NOT NULL", column("x", TypeKind.SET, elements=("a", "b"), nullable=False), ""),
    ("DECIMAL(10,2) DEFAULT 1.005", column("x", TypeKind.DECIMAL, length=10, scale=2, default="1.005"), "1.01"),
    ("DOUBLE DEFAULT 1e20", column("x", TypeKind.DOUBLE, default="100000000000000000000"), "1e+20"),
    ("INT DEFAULT -1", column("x", default="-1"), "-1"),
    ("JSON NOT NULL", column("x", TypeKind.JSON, nullable=False), "null"),
    (
        "TIMESTAMP NULL DEFAULT '2024-01-01 08:00:00'",
        column("x", TypeKind.TIMESTAMP, default="2024-01-01 00:00:00"),
        "2024-01-01 00:00:00+00",
    ),
]
"""What a TiDB put into rows that were there, for each definition and what its schema file says of it."""

SPELLED = [
    ("INT DEFAULT b'101'", "5"),
    ("INT DEFAULT 0x10", "16"),
    ("INT DEFAULT 1e2", "100"),
    ("INT DEFAULT '1e2'", "100"),
    ("INT DEFAULT ' 7'", "7"),
    ("INT DEFAULT 1.5", "2"),
    ("INT DEFAULT -1.5", "-2"),
    ("INT DEFAULT 007", "7"),
    ("BIGINT DEFAULT 9223372036854775807", "9223372036854775807"),
    ("BIGINT DEFAULT -9223372036854775808", "-9223372036854775808"),
    ("BIGINT UNSIGNED DEFAULT 18446744073709551615", "18446744073709551615"),
    ("DECIMAL(5,2) DEFAULT .1", "0.10"),
    ("DECIMAL(5,2) DEFAULT ' .125'", "0.13"),
    ("DECIMAL(5,2) DEFAULT 1e2", "100.00"),
    ("DECIMAL(5,2) DEFAULT -0.001", "0.00"),
    ("DECIMAL(30,0) DEFAULT 123456789012345678901234567890", "123456789012345678901234567890"),
    ("DECIMAL(30,10) DEFAULT '-12345678901234567890.0123456789'", "-12345678901234567890.0123456789"),
    ("DOUBLE DEFAULT .1", "0.1"),
    ("DOUBLE DEFAULT '-1.5e-1'", "-0.15"),
    ("DOUBLE DEFAULT ' 7.5'", "7.5"),
    ("BIT(8) DEFAULT b'101'", "5"),
    ("BIT(8) DEFAULT TRUE", "1"),
    ("VARCHAR(9) DEFAULT 007", "7"),
    ("VARCHAR(9) DEFAULT 1e1", "10"),
    ("VARCHAR(9) DEFAULT 1.50", "1.50"),
    ("VARCHAR(9) DEFAULT 'a' 'b'", "ab"),
    ("SET('a','b') DEFAULT 'b,a,b'", "a,b"),
    ("ENUM('Red','blue') COLLATE utf8mb4_general_ci DEFAULT 'RED'", "Red"),
    ("DATE DEFAULT '2020-1-2'", "2020-01-02"),
    ("DATE DEFAULT '20200102'", "2020-01-02"),
    ("DATE DEFAULT 20200102", "2020-01-02"),
    ("DATETIME DEFAULT '2020-1-2 3:4:5'", "2020-01-02 03:04:05"),
    ("DATETIME DEFAULT '2020-12-31 23:59:59.5'", "2021-01-01 00:00:00"),
    ("DATETIME(2) DEFAULT '20200102030405.125'", "2020-01-02 03:04:05.13"),
    ("TIMESTAMP NULL DEFAULT '2020-1-2'", "2020-01-02 00:00:00+00"),
    ("TIME DEFAULT '1:2'", "01:02:00"),
    ("TIME(1) DEFAULT '101112.25'", "10:11:12.3"),
    ("TIME DEFAULT 101112", "10:11:12"),
]
"""What rows that were there get by a statement alone, for spellings of which TiDB stores another text."""
