"""The user of the services in the bundled MinIO: one bucket, and the operations that they use.

    python -m scar_kube.store_user BUCKET

MinIO has no file of users, and its image need not have its client. So this runs beside the server, with its
root keys (``MINIO_ROOT_USER``, ``MINIO_ROOT_PASSWORD``), and imports the user (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``) as `mc admin cluster iam import` does: again and again until the server takes it.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Sequence
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session

SERVER = "http://127.0.0.1:9000"  # in the same pod
REGION = "us-east-1"
POLICY = "scar"
OBJECT_ACTIONS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
PAUSE = 0.2  # seconds between tries
TRY_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    (bucket,) = arguments
    given = os.environ
    root = Credentials(given["MINIO_ROOT_USER"], given["MINIO_ROOT_PASSWORD"])
    users = user_archive(bucket, given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"])
    problem = ""
    while said := import_users(SERVER, root, users):
        if said != problem:
            problem = said
            sys.stderr.write(f"{problem}\n")
        time.sleep(PAUSE)
    return 0


def user_archive(bucket: str, name: str, password: str) -> bytes:
    """What MinIO imports: one user, its policy, and that they belong together."""
    files = {
        "policies": {POLICY: bucket_policy(bucket)},
        "users": {name: {"secretKey": password, "status": "enabled"}},
        "user_mappings": {name: {"version": 1, "policy": POLICY}},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file, content in files.items():
            archive.writestr(f"iam-assets/{file}.json", json.dumps(content))
    return packed.getvalue()


def bucket_policy(bucket: str) -> dict[str, Any]:
    arn = f"arn:aws:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [arn]},
            {"Effect": "Allow", "Action": list(OBJECT_ACTIONS), "Resource": [f"{arn}/*"]},
        ],
    }


def import_users(server: str, root: Credentials, users: bytes) -> str:
    """Why the server has not taken them, the same words each time; empty: it has."""
    request = AWSRequest(method="PUT", url=f"{server}/minio/admin/v3/import-iam", data=users)
    S3SigV4Auth(root, "s3", REGION).add_auth(request)
    try:
        answer = URLLib3Session(timeout=TRY_SECONDS).send(request.prepare())
    except BotoCoreError as error:
        return str(error)
    return "" if answer.status_code == 200 else f"MinIO answers HTTP {answer.status_code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
