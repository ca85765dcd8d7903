"""Pages made of tables and figures."""
