"""AnalysisError: logs, or a question about them, that have no answer."""


class AnalysisError(ValueError):
    """Logs that are not there, or do not hold what is asked of them."""
