# Images of a node and of the head: packer init . && packer build -var role=node -var region=us-east-1 image.pkr.hcl
packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.3"
    }
  }
}

variable "role" {
  type = string
  validation {
    condition     = contains(["node", "head"], var.role)
    error_message = "The role is node or head."
  }
}

variable "region" {
  type    = string
  default = "us-east-1"
}

locals {
  stamp = formatdate("YYYYMMDD-hhmm", timestamp())
}

source "amazon-ebs" "image" {
  region        = var.region
  instance_type = "c7i.xlarge"
  ssh_username  = "ec2-user"
  ami_name      = "proteus-${var.role}-${local.stamp}"
  imds_support  = "v2.0"
  source_ami_filter {
    filters = {
      name                = "al2023-ami-2023.*-x86_64"
      virtualization-type = "hvm"
    }
    owners      = ["amazon"]
    most_recent = true
  }
  launch_block_device_mappings {
    device_name           = "/dev/xvda"
    volume_size           = 16
    volume_type           = "gp3"
    delete_on_termination = true
  }
}

build {
  sources = ["source.amazon-ebs.image"]

  # A clone without its environment: git archive --prefix=proteus/ HEAD | gzip >proteus.tar.gz, in the clone.
  provisioner "file" {
    source      = "${path.root}/../../proteus.tar.gz"
    destination = "/tmp/proteus.tar.gz"
  }
  provisioner "shell" {
    inline = [
      "sudo dnf install -y -q python3.11 python3.11-pip make git",
      "sudo ln -sf /usr/bin/python3.11 /usr/local/bin/python3",
      "sudo tar -xzf /tmp/proteus.tar.gz -C /opt",
      "sudo PATH=/usr/local/bin:$PATH bash /opt/proteus/infra/aws/install.sh ${var.role}",
      "rm /tmp/proteus.tar.gz",
    ]
  }
}
