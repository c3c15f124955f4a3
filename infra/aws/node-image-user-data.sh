#!/bin/bash
# Without Packer: start a machine of Amazon Linux 2023 with this as its user-data, after putting the archive where it can be
# read, wait until it has stopped, and make an image of it (aws ec2 create-image).
set -eu
ARCHIVE=s3://BUCKET/proteus.tar.gz # git archive --prefix=proteus/ HEAD | gzip, in a clone
dnf install -y -q python3.11 python3.11-pip make git awscli
ln -sf /usr/bin/python3.11 /usr/local/bin/python3
aws s3 cp "$ARCHIVE" - | tar -xz -C /opt
PATH=/usr/local/bin:$PATH bash /opt/proteus/infra/aws/install.sh node
shutdown -h now
