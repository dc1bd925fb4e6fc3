"""For each function that a statement may call: how long its result may be, and whether it searches one text in another.

The lengths are those of MariaDB 10.11, MySQL 8.0 and TiDB, whichever are the greatest. ``tests/sinks/test_mysql_computing.py``
compares them with what a server returns. A function without an entry is not run: nothing is assumed of it.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORT = 70
"""The greatest length of a number as a text (65 digits, sign and point). Dates, times and most hashes are shorter."""

DIGITS = 350
"""The greatest length of a DOUBLE with all its digits: 309, and 38 decimals."""


@dataclass(frozen=True)
class Cost:
    """The result of a function is at most ``times`` as long as all its arguments together, and ``extra`` characters more."""

    times: int = 1
    extra: int = 0
    searches: bool = False
    """Whether the time may grow with the product of the lengths of its arguments."""


def _all(names: str, cost: Cost) -> dict[str, Cost]:
    return dict.fromkeys(names.split(), cost)


COSTS: dict[str, Cost] = (
    _all(
        """
        ABS ACOS ADDDATE ADDTIME ASCII ASIN ATAN ATAN2 AVG BIN BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR
        CHARACTER_LENGTH CHAR_LENGTH CHARSET COERCIBILITY COLLATION CONV CONVERT_TZ COS COT COUNT CRC32 CUME_DIST CURDATE
        CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURTIME DATE DATEDIFF DATE_ADD DATE_SUB DAY DAYNAME DAYOFMONTH DAYOFWEEK
        DAYOFYEAR DEGREES DENSE_RANK EXP EXTRACT FIELD FORMAT_BYTES FORMAT_NANO_TIME FROM_DAYS GET_FORMAT GROUPING HOUR
        INET6_ATON INET6_NTOA INET_ATON INET_NTOA ISNULL IS_IPV4 IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_UUID JSON_DEPTH
        JSON_STORAGE_FREE JSON_STORAGE_SIZE JSON_SUM_CRC32 JSON_TYPE JSON_VALID LAST_DAY LENGTH LN LOCALTIME LOCALTIMESTAMP LOG
        LOG10 LOG2 MAKEDATE MAKETIME MD5 MICROSECOND MINUTE MOD MONTH MONTHNAME NOW NTILE OCT OCTET_LENGTH ORD PERCENT_RANK
        PERIOD_ADD PERIOD_DIFF PI POW POWER QUARTER RADIANS RAND RANK ROW_NUMBER SECOND SEC_TO_TIME SHA SHA1 SIGN SIN SM3
        SQRT STD STDDEV STDDEV_POP STDDEV_SAMP STRCMP STR_TO_DATE SUBDATE SUBTIME SUM SYSDATE TAN TIDB_PARSE_TSO
        TIDB_PARSE_TSO_LOGICAL TIDB_SHARD TIME TIMEDIFF TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TIME_TO_SEC TO_DAYS TO_SECONDS
        UNCOMPRESSED_LENGTH UNIX_TIMESTAMP UTC_DATE UTC_TIME UTC_TIMESTAMP UUID UUID_TIMESTAMP UUID_V4 UUID_V7
        UUID_VERSION APPROX_COUNT_DISTINCT VARIANCE VAR_POP VAR_SAMP VEC_COSINE_DISTANCE VEC_DIMS VEC_L1_DISTANCE
        VEC_L2_DISTANCE VEC_L2_NORM VEC_NEGATIVE_INNER_PRODUCT VITESS_HASH WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK
        """,
        Cost(extra=SHORT),
    )
    | _all("CEIL CEILING FLOOR ROUND TRUNCATE", Cost(extra=DIGITS))
    | _all("SHA2", Cost(extra=128))
    | _all("USER", Cost(extra=512))
    | _all("FORMAT", Cost(extra=512))  # 309 digits with a comma in each thousand, and 38 decimals
    | _all(
        """
        ANY_VALUE APPROX_PERCENTILE COALESCE CONCAT ELT FIRST_VALUE FROM_BASE64 GREATEST IF IFNULL INSERT
        JSON_UNQUOTE LAG LAST_VALUE LEAD LEAST LEFT MAX MID MIN NTH_VALUE NULLIF REVERSE RIGHT SUBSTR SUBSTRING UNHEX
        VEC_AS_TEXT VEC_FROM_TEXT
        """,
        Cost(),
    )
    | _all("BIN_TO_UUID UUID_TO_BIN SOUNDEX MAKE_SET AES_DECRYPT CONCAT_WS", Cost(extra=SHORT))
    | _all("LTRIM RTRIM SUBSTRING_INDEX TRANSLATE TRIM", Cost(searches=True))
    | _all(
        "FIND_IN_SET INSTR JSON_CONTAINS JSON_CONTAINS_PATH JSON_LENGTH JSON_MEMBEROF JSON_OVERLAPS LOCATE POSITION REGEXP_INSTR"
        " REGEXP_LIKE JSON_SCHEMA_VALID",
        Cost(extra=SHORT, searches=True),
    )
    | _all("REGEXP_SUBSTR REGEXP_REPLACE REPLACE", Cost(searches=True))
    | _all("REPEAT SPACE LPAD RPAD", Cost())
    | _all("LOWER UPPER LCASE UCASE", Cost(times=2))
    | _all("QUOTE", Cost(times=2, extra=4))
    | _all("HEX", Cost(times=8, extra=SHORT))  # two digits for each of up to four bytes
    | _all("TO_BASE64", Cost(times=6, extra=SHORT))
    | _all("CAST CONVERT", Cost(extra=SHORT))
    | _all("CHAR AES_ENCRYPT COMPRESS", Cost(times=4, extra=SHORT))
    | _all("DATE_FORMAT TIME_FORMAT FROM_UNIXTIME", Cost(times=6, extra=SHORT))
    | _all("JSON_QUOTE JSON_OBJECT JSON_ARRAY JSON_ARRAYAGG JSON_OBJECTAGG GROUP_CONCAT", Cost(times=6, extra=SHORT))
    | _all("JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_INSERT JSON_REPLACE JSON_SET", Cost(extra=SHORT, searches=True))
    | _all("JSON_MERGE JSON_MERGE_PATCH JSON_MERGE_PRESERVE", Cost(times=2, extra=SHORT, searches=True))
    | _all("JSON_EXTRACT JSON_KEYS JSON_REMOVE JSON_SEARCH JSON_VALUE", Cost(extra=SHORT, searches=True))
    | _all("EXPORT_SET", Cost(times=64, extra=SHORT))
    | _all("JSON_PRETTY", Cost(times=100, extra=SHORT))
    | _all("UNCOMPRESS", Cost(times=1_032))  # the most bytes that zlib expands one byte to
)
