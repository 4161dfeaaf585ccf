from headrace.cluster.protocol import (
    ClusterErrorCode,
    ResponseHeader,
    decode_response,
    encode_response,
    responses,
)


def test_an_error_code_that_is_unknown_here_is_kept_as_its_number() -> None:
    error = responses.Error(ResponseHeader(7, 999, "from the future"))
    again = decode_response(encode_response(error))
    assert again.header.error_code == 999
    assert not again.header.is_success


def test_a_header_of_a_known_code_is_written_as_its_number() -> None:
    header = ResponseHeader(7, ClusterErrorCode.NOT_CONTROLLER, "node 2 leads")
    again = decode_response(encode_response(responses.Error(header)))
    assert again.header == header
    assert ResponseHeader(7).is_success
