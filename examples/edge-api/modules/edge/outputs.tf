output "address" {
  value = "${var.tls ? "https" : "http"}://${terraform_data.edge.triggers_replace.domain}"
}
