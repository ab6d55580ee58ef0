"""The key service: epochs, attempt keys and signatures, with keys in a file, in AWS KMS or in a PKCS#11 token."""
