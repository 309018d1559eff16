""" "Training Through Failure": its families of fault tolerance side by side, on one virtual clock."""
