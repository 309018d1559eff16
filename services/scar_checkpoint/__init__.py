"""The checkpoint coordinator: runs rounds, commits manifests, keeps the store small."""
