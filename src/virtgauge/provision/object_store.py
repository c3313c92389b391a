"""An object store on folders, versitygw, which the tests of the archive speak S3 with."""

from __future__ import annotations

from virtgauge.provision.go_program import GoProgram

OBJECT_STORE = GoProgram("store", "versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
