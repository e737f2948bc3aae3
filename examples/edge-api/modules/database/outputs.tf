locals {
  engine = "16"
}

output "url" {
  value = "postgres://db-${substr(sha256(jsonencode(terraform_data.database.triggers_replace)), 0, 8)}.internal:5432/edge"
}
