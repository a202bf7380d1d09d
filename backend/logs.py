"""The API's own log: one line an entry, and no query strings, which may hold sign-in tickets."""

import logging


class WithoutQuery(logging.Filter):
    """Cuts the query off the path in the server's access log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True; the record's path is shortened."""
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, path, version, status = record.args
            record.args = (client, method, str(path).partition("?")[0], version, status)
        return True


def configure() -> None:
    """Show the API's entries beside the server's."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.access").addFilter(WithoutQuery())
