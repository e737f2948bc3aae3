locals {
  engine = "7"
}

output "url" {
  value = "redis://cache-${substr(sha256(jsonencode(terraform_data.cache.triggers_replace)), 0, 8)}.internal:6379"
}
