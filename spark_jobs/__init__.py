"""Everything that touches Spark. The jobs themselves are not part of this version yet."""
