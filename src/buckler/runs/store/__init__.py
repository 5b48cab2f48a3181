"""Evidence and certificates on disk. The only package that imports pyarrow."""
