"""Key points: heat maps whose targets are points, and their rivals."""
